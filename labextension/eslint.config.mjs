import js from '@eslint/js';
import jupyter from '@jupyter/eslint-plugin';
import tseslint from 'typescript-eslint';

// Those of JupyterLab's extensions; a third part is for Galata, which is not used here.
const [conventions, schemas] = jupyter.configs.recommended;

export default tseslint.config(
  { ignores: ['node_modules/', 'lib/'] },
  js.configs.recommended,
  {
    files: ['**/*.ts'],
    extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      eqeqeq: 'error',
      '@typescript-eslint/naming-convention': [
        'error',
        { selector: 'interface', format: ['PascalCase'], custom: { regex: '^I[A-Z]', match: true } }
      ],
      '@typescript-eslint/no-unused-vars': ['error', { ignoreRestSiblings: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // Indexing is checked by the compiler; `as` after it says that the index is known to be good.
      '@typescript-eslint/non-nullable-type-assertion-style': 'off'
    }
  },
  { plugins: { jupyter } },
  { ...conventions, files: ['src/lab/**/*.ts'] },
  schemas,
  {
    // Signals are connected with the method and its `this`, which is how they are cleared.
    files: ['src/lab/**/*.ts', 'test/lab/**/*.ts'],
    rules: {
      '@typescript-eslint/unbound-method': 'off',
      // What is fetched at the start is bounded as a whole: tests/integration/test_wheel.py.
      'jupyter/prefer-lazy-imports': ['error', { ignoreImports: ['./*', '../*'] }]
    }
  },
  { files: ['*.mjs'], languageOptions: { globals: { process: 'readonly' } } }
);
