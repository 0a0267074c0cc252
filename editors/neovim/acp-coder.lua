-- acp-coder setup: begin (these lines are written by it)
-- The agent as a language server for every file (Neovim 0.11 or newer).
--   :AcpCoder [PROMPT]     ask; with a range, about these lines; without a prompt it asks for one
--   :AcpCoderStop          stop the turn; :AcpCoderAnswer shows the pending question again
--   :AcpCoderMode [mode]   :AcpCoderModel [model]   :AcpCoderSessions   :AcpCoderNew
--   :AcpCoderUndo [N]      take back the last prompt, or prompt N and all after it; :AcpCoderRedo
--   :AcpCoderDiff [N]      what was changed; :AcpCoderCheckpoints lists the prompts
--   :AcpCoderTranscript    the conversation
-- Code actions (`gra`) offer the same. Progress: `vim.ui.progress_status()` in the status line, or any progress plugin.
if vim.fn.has("nvim-0.11") == 0 then
  return
end

local function client()
  return vim.lsp.get_clients({ name = "acp_coder", bufnr = 0 })[1] or vim.lsp.get_clients({ name = "acp_coder" })[1]
end

local function run(command, argument, waited)
  local agent = client()
  if agent == nil or not agent.initialized then
    if (waited or 0) < 100 then -- It starts with the first file.
      vim.defer_fn(function()
        run(command, argument, (waited or 0) + 1)
      end, 50)
    else
      vim.notify("acp-coder: it is not running for any open file", vim.log.levels.WARN)
    end
    return
  end
  local params = { command = command, arguments = argument ~= nil and { argument } or {} }
  agent:request("workspace/executeCommand", params, function(err)
    if err ~= nil then
      vim.notify("acp-coder: " .. err.message, vim.log.levels.ERROR)
    end
  end)
end

local function save(_, params)
  local buffer = vim.fn.bufnr(vim.uri_to_fname(params.uri))
  if buffer > 0 and vim.bo[buffer].modified then
    vim.api.nvim_buf_call(buffer, function()
      vim.cmd("silent noautocmd keepalt lockmarks write!") -- The buffer already has what a command changed.
    end)
    vim.lsp.buf_notify(buffer, "textDocument/didSave", { textDocument = { uri = params.uri } })
  end
end

local function changed(_, params)
  local buffer = vim.fn.bufnr(vim.uri_to_fname(params.uri))
  if buffer > 0 and not vim.bo[buffer].modified then
    vim.bo[buffer].autoread = true
    vim.cmd("silent! checktime " .. buffer)
  end
end

vim.lsp.config("acp_coder", {
  cmd = { "{{command}}", "lsp" },
  root_dir = function(buffer, found)
    if vim.api.nvim_buf_get_name(buffer):match("acp%-agent%.md$") then
      local agent = vim.lsp.get_clients({ name = "acp_coder" })[1]
      if agent ~= nil then -- A transcript belongs to the agent that writes it.
        found(agent.root_dir)
      end
    elseif vim.bo[buffer].buftype == "" then
      local markers = { ".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod" }
      found(vim.fs.root(buffer, markers) or vim.fn.getcwd())
    end
  end,
  init_options = { save = "client" },
  handlers = {
    ["acpCoder/save"] = save,
    ["acpCoder/changed"] = changed,
  },
  on_attach = function(agent, buffer)
    vim.lsp.inlay_hint.enable(true, { bufnr = buffer })
    if agent:supports_method("textDocument/codeLens", buffer) then
      if vim.lsp.codelens.enable ~= nil then
        vim.lsp.codelens.enable(true, { bufnr = buffer })
      else
        vim.lsp.codelens.refresh({ bufnr = buffer })
      end
    end
  end,
})
vim.lsp.enable("acp_coder")

vim.api.nvim_create_user_command("AcpCoder", function(call)
  local function ask(words)
    if words == nil or words == "" then
      return
    end
    local argument = { text = words }
    if vim.bo.buftype == "" and vim.api.nvim_buf_get_name(0) ~= "" then
      argument.uri = vim.uri_from_bufnr(0)
      if call.range > 0 then
        argument.range = {
          start = { line = call.line1 - 1, character = 0 },
          ["end"] = { line = call.line2, character = 0 },
        }
      end
    end
    run("acpCoder.prompt", argument)
  end
  if call.args ~= "" then
    ask(call.args)
  else
    vim.ui.input({ prompt = "Ask the agent: " }, ask)
  end
end, { nargs = "*", range = true, desc = "Ask the agent" })

for name, command in pairs({
  AcpCoderStop = "acpCoder.stop",
  AcpCoderAnswer = "acpCoder.answer",
  AcpCoderContinue = "acpCoder.continue",
  AcpCoderTranscript = "acpCoder.transcript",
  AcpCoderMode = "acpCoder.mode",
  AcpCoderModel = "acpCoder.model",
  AcpCoderSessions = "acpCoder.sessions",
  AcpCoderNew = "acpCoder.newSession",
  AcpCoderUndo = "acpCoder.undo",
  AcpCoderRedo = "acpCoder.redo",
  AcpCoderDiff = "acpCoder.diff",
  AcpCoderCheckpoints = "acpCoder.checkpoints",
}) do
  vim.api.nvim_create_user_command(name, function(call)
    run(command, call.args ~= "" and call.args or nil)
  end, { nargs = "?", desc = "The agent: " .. command })
end
-- acp-coder setup: end
