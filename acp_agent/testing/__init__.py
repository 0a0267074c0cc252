"""The public test kit: a scripted editor, a scripted model, and checks of every line on the wire.

Import what you need from its modules (`fake_editor`, `fake_model`, `checks`, `plugin`): the package loads none of them.
"""
