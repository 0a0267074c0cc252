-- The formats of the session database. Each makes format n of format n - 1, from nothing on; what has been released
-- is never changed. A blank line ends a statement.

-- format 1

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    cwd TEXT NOT NULL,
    additional_directories TEXT NOT NULL,
    title TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    mode TEXT NOT NULL,
    model TEXT NOT NULL,
    thought_level TEXT NOT NULL,
    turns INTEGER NOT NULL
) STRICT

CREATE INDEX sessions_by_time ON sessions (updated_at DESC, id DESC)

CREATE TABLE log (
    seq INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL
) STRICT

CREATE INDEX log_by_session ON log (session_id, seq)

CREATE TABLE permissions (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    tool TEXT NOT NULL,
    scope TEXT NOT NULL,
    decision TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (project, tool, scope)
) STRICT

-- format 2

CREATE TABLE memories (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    content TEXT NOT NULL,
    category TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (project, key)
) STRICT

CREATE VIRTUAL TABLE memory_words USING fts5 (key, content, content='memories', content_rowid='id')

CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memory_words (rowid, key, content) VALUES (new.id, new.key, new.content);
END

CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memory_words (memory_words, rowid, key, content)
    VALUES ('delete', old.id, old.key, old.content);
END

CREATE TRIGGER memories_changed AFTER UPDATE ON memories BEGIN
    INSERT INTO memory_words (memory_words, rowid, key, content)
    VALUES ('delete', old.id, old.key, old.content);
    INSERT INTO memory_words (rowid, key, content) VALUES (new.id, new.key, new.content);
END

CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    timing TEXT NOT NULL,
    prompt TEXT NOT NULL,
    mode TEXT NOT NULL,
    created_at TEXT NOT NULL,
    next_run REAL NOT NULL,
    last_run REAL,
    runs INTEGER NOT NULL
) STRICT

CREATE INDEX schedules_by_project ON schedules (project, next_run)

-- format 3

CREATE TABLE tool_overflow (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tool TEXT NOT NULL,
    created_at TEXT NOT NULL,
    chars INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    content TEXT NOT NULL
) STRICT

CREATE INDEX tool_overflow_by_session ON tool_overflow (session_id)

CREATE INDEX tool_overflow_by_time ON tool_overflow (created_at)

CREATE TABLE goals (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    text TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT

CREATE INDEX goals_by_session ON goals (session_id, status)

CREATE TABLE goal_tasks (
    goal_id TEXT NOT NULL REFERENCES goals (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    content TEXT NOT NULL,
    priority TEXT NOT NULL,
    status TEXT NOT NULL,
    depends_on TEXT NOT NULL,
    PRIMARY KEY (goal_id, position)
) STRICT

-- format 4

CREATE TABLE trajectories (
    project TEXT NOT NULL,
    steps TEXT NOT NULL,
    failures INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (project, steps)
) STRICT

CREATE TABLE questions (
    project TEXT NOT NULL,
    tool TEXT NOT NULL,
    scope TEXT NOT NULL,
    allowed INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (project, tool, scope)
) STRICT

-- format 5

CREATE TABLE audit_heads (
    log TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    hash TEXT NOT NULL,
    begin INTEGER NOT NULL
) STRICT

-- format 6

CREATE TABLE spending (
    session_id TEXT NOT NULL,
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    calls INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cost REAL NOT NULL,
    unpriced INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    PRIMARY KEY (session_id, day, model)
) STRICT

CREATE INDEX spending_by_day ON spending (day)

-- format 7

CREATE TABLE operations (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    prompt INTEGER NOT NULL,
    call TEXT NOT NULL,
    made_by TEXT NOT NULL,
    title TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL,
    uncovered TEXT NOT NULL,
    undoes TEXT NOT NULL,
    rewound INTEGER NOT NULL
) STRICT

CREATE INDEX operations_by_session ON operations (session_id, id)

CREATE INDEX operations_by_state ON operations (state)

CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    operation INTEGER NOT NULL REFERENCES operations (id) ON DELETE CASCADE,
    path BLOB NOT NULL,
    before TEXT NOT NULL,
    after TEXT
) STRICT

CREATE INDEX changes_by_operation ON changes (operation)

-- format 8

ALTER TABLE sessions ADD COLUMN place TEXT NOT NULL DEFAULT ''

-- format 9

ALTER TABLE sessions ADD COLUMN holder TEXT

ALTER TABLE sessions ADD COLUMN held_until REAL

ALTER TABLE sessions ADD COLUMN searched_to INTEGER NOT NULL DEFAULT 0

ALTER TABLE sessions ADD COLUMN unsearched INTEGER NOT NULL DEFAULT 0

UPDATE sessions SET unsearched = 1 WHERE turns > 0

CREATE INDEX sessions_unsearched ON sessions (id) WHERE unsearched = 1

CREATE INDEX sessions_held ON sessions (held_until) WHERE holder IS NOT NULL

CREATE INDEX sessions_by_folder ON sessions (cwd, updated_at DESC, id DESC)

CREATE TABLE shown (
    seq INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT

CREATE INDEX shown_by_session ON shown (session_id, seq)

CREATE VIRTUAL TABLE shown_words USING fts5 (text, content='shown', content_rowid='seq')

CREATE TRIGGER shown_added AFTER INSERT ON shown BEGIN
    INSERT INTO shown_words (rowid, text) VALUES (new.seq, new.text);
END

CREATE TRIGGER shown_removed AFTER DELETE ON shown BEGIN
    INSERT INTO shown_words (shown_words, rowid, text) VALUES ('delete', old.seq, old.text);
END

-- format 10

ALTER TABLE sessions ADD COLUMN real_cwd TEXT NOT NULL DEFAULT ''

-- format 11

ALTER TABLE sessions ADD COLUMN parent TEXT REFERENCES sessions (id) ON DELETE CASCADE

CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL

-- format 12

ALTER TABLE sessions ADD COLUMN client_prompt TEXT NOT NULL DEFAULT ''

-- format 13

ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0
