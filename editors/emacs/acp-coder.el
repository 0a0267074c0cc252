;; `M-x acp-coder' makes the agent the language server of this buffer's files (eglot): code actions, live progress,
;; edits and questions.  Eglot has one server per mode and project, so this replaces another one until
;; `M-x eglot-shutdown'.  For a chat beside other servers, use agent-shell, which offers the agent, too.
(defvar acp-coder-program "{{command}}"
  "The agent's program.")

(defvar acp-coder--initialization-options '(:save "client")
  "Initialization options for the agent.")

(defvar acp-coder--server nil
  "The last server that was used.")

(defun acp-coder ()
  "Make the agent the language server of this buffer's files."
  (interactive)
  (require 'eglot)
  (when-let* ((server (eglot-current-server)))
    (eglot-shutdown server))
  (eglot (list major-mode)
         (or (project-current) (cons 'transient default-directory))
         'eglot-lsp-server
         (list acp-coder-program "lsp" :initializationOptions acp-coder--initialization-options)
         (list (acp-coder--language-id major-mode)))
  (setq acp-coder--server (eglot-current-server)))

(defun acp-coder--language-id (mode)
  "The LSP language id for MODE."
  (replace-regexp-in-string "\\(-ts\\)?-mode\\'" "" (symbol-name mode)))

(defun acp-coder--execute (command &rest arguments)
  "Ask the agent for COMMAND with ARGUMENTS, without waiting."
  (let ((server (or (and (fboundp 'eglot-current-server) (eglot-current-server))
                    acp-coder--server)))  ; From the transcript, which is not a project file.
    (unless (and server (jsonrpc-running-p server))
      (user-error "Say `M-x acp-coder' first"))
    (setq acp-coder--server server)
    (when (fboundp 'eglot--signal-textDocument/didChange)  ; Include what was just typed.
      (dolist (buffer (eglot--managed-buffers server))
        (when (buffer-live-p buffer)
          (with-current-buffer buffer (eglot--signal-textDocument/didChange)))))
    (jsonrpc-async-request server :workspace/executeCommand
                           (list :command command :arguments (vconcat arguments))
                           :error-fn (lambda (err) (message "acp-coder: %s" (plist-get err :message))))))

(defun acp-coder-ask (words)
  "Ask the agent WORDS, about the region if it is active."
  (interactive "sAsk the agent: ")
  (require 'eglot)
  (acp-coder--execute
   "acpCoder.prompt"
   (append (list :text words)
           (when buffer-file-name (list :uri (eglot-path-to-uri buffer-file-name)))
           (when (use-region-p)
             (list :range (list :start (eglot--pos-to-lsp-position (region-beginning))
                                :end (eglot--pos-to-lsp-position (region-end))))))))

(defun acp-coder-stop () "Stop the agent's turn." (interactive) (acp-coder--execute "acpCoder.stop"))
(defun acp-coder-answer () "Answer the agent's pending question." (interactive) (acp-coder--execute "acpCoder.answer"))
(defun acp-coder-continue () "Let the agent continue." (interactive) (acp-coder--execute "acpCoder.continue"))
(defun acp-coder-undo () "Take back what the last prompt did." (interactive) (acp-coder--execute "acpCoder.undo"))
(defun acp-coder-redo () "Do again what was taken back." (interactive) (acp-coder--execute "acpCoder.redo"))
(defun acp-coder-diff () "Show what the session changed." (interactive) (acp-coder--execute "acpCoder.diff"))
(defun acp-coder-transcript () "Show the conversation." (interactive) (acp-coder--execute "acpCoder.transcript"))
(defun acp-coder-mode () "Choose the agent's mode." (interactive) (acp-coder--execute "acpCoder.mode"))
(defun acp-coder-model () "Choose the agent's model." (interactive) (acp-coder--execute "acpCoder.model"))

(defun acp-coder--follow-transcript ()
  "Show what the agent writes to its transcript."
  (when (and buffer-file-name (string-suffix-p "acp-coder.md" buffer-file-name))
    (auto-revert-mode 1)))
(add-hook 'find-file-hook #'acp-coder--follow-transcript)

(with-eval-after-load 'eglot
  (cl-defmethod eglot-handle-notification (_server (_method (eql acpCoder/save)) &key uri &allow-other-keys)
    "Save the buffer that the agent has changed: commands see the file on disk."
    (when-let* ((buffer (find-buffer-visiting (eglot-uri-to-path uri))))
      (with-current-buffer buffer
        (when (buffer-modified-p)
          (set-visited-file-modtime)  ; The buffer already has what a command changed.
          (let ((inhibit-message t)) (save-buffer))))))
  (cl-defmethod eglot-handle-notification (_server (_method (eql acpCoder/changed)) &key uri &allow-other-keys)
    "Reload the file that one of the agent's commands has changed."
    (when-let* ((buffer (find-buffer-visiting (eglot-uri-to-path uri))))
      (with-current-buffer buffer
        (unless (buffer-modified-p) (revert-buffer t t t))))))

(with-eval-after-load 'agent-shell
  (add-to-list 'agent-shell-agent-configs
               (agent-shell-make-agent-config
                :identifier 'acp-coder
                :mode-line-name "acp-coder"
                :buffer-name "acp-coder"
                :shell-prompt "acp-coder> "
                :shell-prompt-regexp "acp-coder> "
                :client-maker (lambda (buffer)
                                (acp-make-client :command acp-coder-program
                                                 :command-params nil
                                                 :context-buffer buffer)))))
