"""Whatever runs next to the turns of a session: background commands, schedules, language servers."""
