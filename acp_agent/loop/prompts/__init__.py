"""From a prompt to what the model reads: instructions, skills, links, the system prompt."""
