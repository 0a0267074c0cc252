"""The model's view of the conversation: history, room in the context, goals, replay."""
