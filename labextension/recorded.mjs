// Bundles the recorded server (src/lab/recorded/) into a prebuilt extension for JupyterLite; the last
// word is the folder to write to.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { build } from 'esbuild';

const outdir = process.argv[2];
const entry = 'static/remoteEntry.js';
await build({
  entryPoints: ['src/lab/recorded/index.ts'],
  outfile: join(outdir, entry),
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  logLevel: 'warning'
});
const jupyterlab = { extension: true, _build: { load: entry, extension: './extension' } };
const about = { name: 'det-recorded', version: '0.0.0', jupyterlab };
await writeFile(join(outdir, 'package.json'), JSON.stringify(about));
