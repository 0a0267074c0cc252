-- acp-coder setup: begin (these lines are written by it)
-- The agent as an adapter of CodeCompanion. In CodeCompanion's setup:
--   adapters = { acp = { acp_coder = require("acp_coder_codecompanion") } }
return function()
  return require("codecompanion.adapters").extend("opencode", {
    name = "acp_coder",
    formatted_name = "acp-coder",
    commands = { default = { "{{command}}" } },
  })
end
-- acp-coder setup: end
