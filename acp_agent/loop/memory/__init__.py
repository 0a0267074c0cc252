"""The model's view of the conversation: history, space in the context, goals, replay."""
