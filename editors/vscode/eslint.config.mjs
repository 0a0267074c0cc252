import tseslint from "typescript-eslint";

const strict = {
  eqeqeq: "error",
  "no-console": "error",
  "no-restricted-syntax": [
    "error",
    { selector: "TSEnumDeclaration", message: "Use a union of string literals." },
    { selector: "MemberExpression[property.name='innerHTML']", message: "Only src/webview/markdown.tsx sets HTML, sanitised." },
  ],
  "@typescript-eslint/no-floating-promises": "error",
  "@typescript-eslint/no-unnecessary-condition": "error",
  "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
  "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
  // VS Code's `Disposable` is a class that nobody needs to extend: anything with `dispose` is one.
  "@typescript-eslint/no-unsafe-class-instance-assignment": "off",
  "max-lines": ["error", 500],
};

export default tseslint.config(
  { ignores: ["dist/**", "node_modules/**", "*.mjs", "*.config.mts", "test/fixtures/**"] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: ["./tsconfig.json", "./src/webview/tsconfig.json", "./src/web/tsconfig.json"], tsconfigRootDir: import.meta.dirname },
    },
    rules: strict,
  },
  {
    // What is decided without the editor stays testable without it.
    files: ["src/core/**", "src/agent/**", "src/chat/chat.ts", "src/chat/outbox.ts", "src/webview/**", "src/web/**"],
    rules: { "no-restricted-imports": ["error", { paths: ["vscode"] }] },
  },
);
