-- acp-agent setup: begin (these lines are written by it)
-- The agent as an adapter of CodeCompanion. In CodeCompanion's setup:
--   adapters = { acp = { acp_agent = require("acp_agent_codecompanion") } }
return function()
  return require("codecompanion.adapters").extend("opencode", {
    name = "acp_agent",
    formatted_name = "acp-agent",
    commands = { default = { "{{command}}" } },
  })
end
-- acp-agent setup: end
