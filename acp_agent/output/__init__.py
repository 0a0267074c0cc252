"""What becomes of tool output on its way to the model and the person."""
