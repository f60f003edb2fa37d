// Builds the extension of JupyterLab: turns the TypeScript in src/ into the modules in lib/, which
// @jupyter/builder bundles. Types are not checked here (`npm run lint` does that), so that a build
// needs few packages and little time.
import { execFileSync } from 'node:child_process';
import { copyFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

import { build } from 'esbuild';

const names = await readdir('src', { recursive: true });
await rm('lib', { recursive: true, force: true });
await build({
  entryPoints: names.filter(name => name.endsWith('.ts')).map(name => join('src', name)),
  outdir: 'lib',
  format: 'esm',
  target: 'es2022',
  logLevel: 'warning'
});
const [builder, core] = [
  'node_modules/@jupyter/builder/lib/build-labextension.js',
  'node_modules/@jupyterlab/core-meta/core.package.json'
];
execFileSync(process.execPath, [builder, '--core-package-file', core, '.'], { stdio: 'inherit' });
await copyFile('install.json', '../det_jupyter/labextension/install.json');
