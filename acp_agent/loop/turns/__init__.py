"""One turn: asking the model, running its calls, sub-agents, questions to the user."""
