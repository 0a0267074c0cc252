"""Front ends other than an ACP editor, each an ACP client itself."""
