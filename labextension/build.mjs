// Bundles the anywidget into the Python package: one ES module and one style sheet.
// The last word is the folder to write to; hatch_build.py and `npm run build` use the default.
import { readFile } from 'node:fs/promises';

import { build } from 'esbuild';

const outdir = process.argv[2] ?? '../det_jupyter/notebook/static';
const uplotLicense = await readFile('node_modules/uplot/LICENSE', 'utf8');
const banner = `/*!\nContains uPlot (https://github.com/leeoniya/uPlot).\n\n${uplotLicense.trim()}\n*/`;

await build({
  entryPoints: { widget: 'src/widget.ts' },
  outdir,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  banner: { js: banner, css: banner },
  logLevel: 'warning'
});
