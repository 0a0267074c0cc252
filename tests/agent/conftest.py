"""With `ACP_TEST_WIRE=v2` the tests run in v2 of ACP (`tests/v2_wire.py`), but for those of what v2 does not have."""

from __future__ import annotations

import pytest

from tests.agent.kit import WIRE

NOT_IN_V2 = {
    "a client of v2 has no files of its own": """
        test_a_buffer_that_was_saved_meanwhile_may_be_edited
        test_a_file_that_is_not_utf8_keeps_its_encoding_whatever_the_editor_makes_of_it
        test_a_hunk_is_reverted_in_the_files_encoding_although_the_text_is_not_saved
        test_changes_that_the_user_saved_later_are_taken_back_and_redone_saved_or_not
        test_unsaved_text_that_the_editor_did_not_return_is_never_overwritten
        test_a_change_that_the_editor_keeps_unsaved_is_taken_back_in_the_buffer
        test_a_client_error_on_write_fails_the_call_and_not_the_turn
        test_a_hunk_is_reverted_in_the_text_as_it_is_now
        test_a_path_that_changed_is_read_again
        test_a_rename_changes_what_the_editor_has_and_not_what_the_disk_had
        test_an_editor_that_refuses_to_write_leaves_nothing_half_restored
        test_edit_and_bash_work_with_every_mix_of_capabilities
        test_edit_changes_text_in_a_cell_and_nothing_else_of_the_file
        test_unsaved_changes_made_since_are_a_conflict
        test_unsaved_changes_of_the_editor_are_read_and_kept
        test_unsaved_text_of_the_editor_comes_back
        test_unsaved_text_of_the_editor_is_read_and_edited
    """,
    "a client of v2 has no terminals of its own": """
        test_a_client_that_does_not_answer_the_kill_does_not_hold_the_cancel
        test_commands_in_the_editors_terminal_are_confined_too_unless_switched_off
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
        test_a_busy_session_is_forked_up_to_its_last_finished_turn
        test_a_fork_after_an_undo_lives
        test_a_fork_before_a_prompt_knows_nothing_of_it_and_goes_on_counting
        test_a_fork_can_end_with_a_message
        test_a_fork_gets_a_worktree_and_is_opened_there
        test_a_fork_has_the_cache_key_of_its_source
        test_a_fork_in_a_worktree_has_the_files_of_its_prompt
        test_a_fork_reads_the_outputs_that_its_source_kept
        test_a_fork_that_cannot_be_is_refused
        test_a_malformed_message_to_fork_at_is_ignored
        test_a_session_that_is_not_open_is_forked_and_untouched
        test_forking_is_advertised
        test_plans_are_documents_where_the_client_takes_them
        test_the_model_can_be_set_as_clients_of_old_schemas_do
        test_the_next_request_of_a_fork_begins_with_the_bytes_of_its_source
        test_the_undo_of_a_fork_begins_with_it
        test_a_mode_set_as_an_option_shows_in_the_modes
        test_a_mode_set_by_the_client_shows_in_the_options
    """,
    "a compaction is an update of its own in v2, without words": """
        test_a_cap_in_tokens_makes_room_whatever_the_window
        test_a_client_that_shows_notices_gets_one
        test_a_model_that_cannot_summarise_costs_the_oldest_turns_and_no_more
        test_a_smaller_context_is_made_to_fit_first
        test_a_summary_falls_back_too
        test_an_unknown_window_counts_as_128000_tokens
        test_compact_replaces_the_conversation_by_a_summary
        test_old_results_make_room_for_new_ones_and_the_turn_goes_on
    """,
    "v2 has another rule (test_v2.py)": """
        test_a_local_server_needs_no_login
        test_a_second_initialize_leaves_sessions_alone
        test_an_impossible_version_is_invalid_params
        test_cancel_request_for_a_prompt_gives_a_stop_reason
        test_close_ends_the_turn_frees_the_session_and_keeps_it_in_history
        test_every_request_is_answered_and_never_with_an_internal_error
        test_odd_capabilities_count_as_unsupported
    """,
    "the wire of the tests sends all of an output again with each piece of it": """
        test_a_flood_of_output_reaches_the_editor_in_messages_of_sane_size
        test_what_a_call_gives_is_bounded_for_model_and_person
    """,
}
"""Why -> tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = {name: reason for reason, names in NOT_IN_V2.items() for name in names.split()} if WIRE == "v2" else {}
    for item in items:
        if reason := why.get(getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.skip(reason=reason))
