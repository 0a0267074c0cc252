"""What runs beside the turns of a session: background commands, schedules, language servers."""
