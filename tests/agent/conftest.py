"""With `ACP_TEST_WIRE=v2` the tests that are about messages run in v2 of ACP (`tests/v2_wire.py`), but for those of
what v2 does not have. The rule: together they see each kind of message of the suite (`KINDS`), else the run fails.
"""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from acp_agent.loop.undo import change_recorder
from tests import v2_wire
from tests.agent.kit import WIRE, Again, agains
from tests.tables import packed

HERE = Path(__file__).parent
change_recorder.PROMPTLY = 60.0  # What a command changed is in its result also on a busy machine.

NOT_IN_V2 = {
    "a client of v2 has no files of its own": """
        test_a_buffer_that_was_saved_meanwhile_may_be_edited test_mixed_line_ends_are_kept_through_the_editor
        test_a_file_that_is_not_utf8_keeps_its_encoding_whatever_the_editor_makes_of_it
        test_a_hunk_is_reverted_in_the_files_encoding_although_the_text_is_not_saved
        test_changes_that_the_user_saved_later_are_taken_back_and_redone_saved_or_not
        test_unsaved_text_that_the_editor_did_not_return_is_never_overwritten
        test_a_change_that_the_editor_keeps_unsaved_is_taken_back_in_the_buffer
        test_a_client_error_on_write_fails_the_call_and_not_the_turn test_a_hunk_is_reverted_in_the_text_as_it_is_now
        test_an_editor_that_refuses_to_write_leaves_nothing_half_restored
        test_edit_and_bash_work_with_every_mix_of_capabilities test_unsaved_changes_made_since_are_a_conflict
        test_unsaved_text_of_the_editor_comes_back test_unsaved_text_of_the_editor_is_read_and_edited
    """,
    "a client of v2 has no terminals of its own": """
        test_a_client_that_does_not_answer_the_kill_does_not_hold_the_cancel
        test_the_terminal_is_embedded_before_the_command_ends_and_released_after_the_last_update
        test_the_terminal_stays_in_the_card_and_is_released_after_its_last_update
        test_without_terminals_the_output_comes_into_the_card_while_it_runs
        test_a_cancelled_turn_leaves_what_runs_in_the_background
        test_a_client_that_draws_terminals_from_meta_gets_them
        test_a_late_terminal_is_ended_by_its_mark_where_the_client_kills_nothing
        test_a_session_is_loaded_or_deleted_only_after_a_close_has_ended
        test_a_terminal_made_after_the_cancel_is_killed_and_released
        test_calls_that_had_not_begun_are_answered_for_the_model
        test_the_terminal_runs_a_program_with_one_script_as_its_only_argument
        test_what_was_lost_while_a_command_ran_is_told
    """,
    "v2 has it only as a draft of its own, or not at all": """
        test_a_busy_session_is_forked_up_to_its_last_finished_turn test_a_fork_after_an_undo_lives
        test_a_fork_before_a_prompt_knows_nothing_of_it_and_goes_on_counting test_a_fork_can_end_with_a_message
        test_a_fork_has_the_cache_key_of_its_source test_a_fork_in_a_worktree_has_the_files_of_its_prompt
        test_a_fork_reads_the_outputs_that_its_source_kept test_a_fork_that_cannot_be_is_refused
        test_a_malformed_message_to_fork_at_is_ignored test_a_session_that_is_not_open_is_forked_and_untouched
        test_the_model_can_be_set_as_clients_of_old_schemas_do
        test_the_next_request_of_a_fork_begins_with_the_bytes_of_its_source test_the_undo_of_a_fork_begins_with_it
        test_a_mode_set_as_an_option_shows_in_the_modes test_a_mode_set_by_the_client_shows_in_the_options
    """,
    "a compaction is an update of its own in v2, without words": """
        test_a_cap_in_tokens_makes_room_whatever_the_window
        test_a_model_that_cannot_summarise_costs_the_middle_of_old_turns_and_no_more
        test_an_unknown_window_counts_as_128000_tokens test_compact_replaces_the_conversation_by_a_summary
        test_old_results_make_room_for_new_ones_and_the_turn_goes_on
    """,
    "v2 has another rule (test_v2.py)": """
        test_a_local_server_needs_no_login test_a_second_initialize_leaves_sessions_alone
        test_an_impossible_version_is_invalid_params test_cancel_request_for_a_prompt_gives_a_stop_reason
        test_close_ends_the_turn_frees_the_session_and_keeps_it_in_history
        test_every_request_is_answered_and_never_with_an_internal_error test_odd_capabilities_count_as_unsupported
    """,
    "the wire of the tests sends all of an output again with each piece of it": """
        test_a_flood_of_output_reaches_the_editor_in_messages_of_sane_size
    """,
}
"""Why -> tests."""


TRAFFIC = """
    apply_patch background cancel choices_and_commands context cost delegate endless_answers fork golden
    hooks_that_decide initialize_and_auth language_servers mcp mcp_everything odd_input outputs permissions plugins
    prompt sessions steering tool_calls undo v2 wire_fuzz
""".split()
"""Modules, without `test_`, that are about messages which v2 has otherwise, or that alone cause some kind of them."""

KINDS = {
    "from_agent": """
        $/cancel_request ¦ _lsp/definition ¦ _lsp/diagnostics ¦ _lsp/documentSymbols ¦ _lsp/hover ¦ _lsp/references
        _lsp/rename ¦ _lsp/workspaceSymbols ¦ agent_message_chunk ¦ agent_thought_chunk ¦ available_commands_update
        compaction_update cancelled ¦ compaction_update completed ¦ compaction_update failed
        compaction_update in_progress ¦ config_option_update ¦ elicitation/complete ¦ elicitation/create ¦ notice
        plan_update ¦ session/request_permission ¦ session_info_update ¦ state_update idle
        state_update idle cancelled ¦ state_update idle end_turn ¦ state_update idle error
        state_update idle max_tokens ¦ state_update idle max_turn_requests ¦ state_update idle refusal
        state_update requires_action ¦ state_update running ¦ terminal_output_chunk ¦ terminal_update
        tool_call_update ¦ tool_call_update cancelled content ¦ tool_call_update cancelled content terminal
        tool_call_update completed ¦ tool_call_update completed content ¦ tool_call_update completed content diff
        tool_call_update completed content terminal ¦ tool_call_update completed diff
        tool_call_update completed terminal ¦ tool_call_update content ¦ tool_call_update content terminal
        tool_call_update failed ¦ tool_call_update failed content ¦ tool_call_update failed content terminal
        tool_call_update in_progress ¦ tool_call_update in_progress content
        tool_call_update in_progress content diff ¦ tool_call_update in_progress diff ¦ tool_call_update pending
        tool_call_update pending content ¦ tool_call_update pending content diff ¦ tool_call_update pending terminal
        tool_call_update terminal ¦ usage_update ¦ user_message ¦ user_message text ¦ user_message_chunk
    """,
    "to_agent": """
        $/cancel_request ¦ _lsp/didSave ¦ _lsp/publishDiagnostics ¦ _session/changes ¦ _session/checkpoints
        _session/redo ¦ _session/steering ¦ _session/undo ¦ auth/login ¦ initialize ¦ session/cancel ¦ session/close
        session/delete ¦ session/list ¦ session/new ¦ session/prompt ¦ session/resume ¦ session/set_config_option
    """,
}
"""As `v2_wire.kind` names them."""


@pytest.fixture
async def again(tmp_path: Path) -> AsyncIterator[Again]:
    """A module whose tables need another agent has its own."""
    async with agains(tmp_path) as made:
        yield made


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """For what runs as another user, who does not reach `tmp_path`."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    with tempfile.TemporaryDirectory(prefix="acp-user-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem.removeprefix("test_") in TRAFFIC:
            item.add_marker(pytest.mark.traffic)
    if WIRE != "v2":
        return
    left = [item for item in items if item.get_closest_marker("traffic") is None]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item.get_closest_marker("traffic") is not None]
    why = {name: reason for reason, names in NOT_IN_V2.items() for name in names.split()}
    for item in items:
        if reason := why.get(getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Workers tell what they have seen; who has heard them all judges, if the whole of it was run."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["kinds"] = sorted(v2_wire.SEEN)
        return
    whole = WIRE == "v2" and [Path(each).resolve() for each in config.args] == [HERE] and not config.option.keyword
    unseen = [f"{way} {each}" for way, words in KINDS.items() for each in map(str.strip, packed(words.strip()))]
    unseen = [each for each in unseen if each not in v2_wire.SEEN]
    if whole and unseen and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write(f"\nno test in v2 has seen: {'; '.join(unseen)} (tests/agent/conftest.py)\n")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    v2_wire.SEEN.update(getattr(node, "workeroutput", {}).get("kinds", ()))
