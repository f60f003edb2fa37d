// Bundles the anywidget into the Python package: three modules and one style sheet.
//
//     widget.js    what every view needs; each widget carries it
//     tabs.js      the tabs that are fetched when one is opened: a function of what it shares with
//                  widget.js (src/core.ts)
//     page.js      shows widget.js in an HTML file, without a kernel
//
// esbuild splits the code into what each of the two has for itself and what they share; the shared
// part then becomes a part of widget.js. The last word is the folder to write to; hatch_build.py
// and `npm run build` use the default.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';

import { build } from 'esbuild';
import { minify } from 'terser';

import { leanUplot } from './uplot.mjs';

const outdir = process.argv[2] ?? '../det_jupyter/front/notebook/static';
const uplotLicense = await readFile('node_modules/uplot/LICENSE', 'utf8');
const CORE = 'core.js'; // the shared part
const common = {
  outdir, // no file is written there by esbuild
  bundle: true,
  write: false,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  logLevel: 'warning'
};

const split = await build({
  ...common,
  entryPoints: { widget: 'src/widget.ts', tabs: 'src/alltabs.ts' },
  splitting: true,
  chunkNames: 'core',
  // Private members get short names, the same in all parts.
  mangleProps: /^_[a-z]/,
  reserveProps: /^_n$/, // of translations
  metafile: true,
  plugins: [leanUplot, { name: 'core', setup: leaveCoreOpen }]
});
const parts = new Map(split.outputFiles.map(({ path, text }) => [basename(path), text]));
const outputs = Object.entries(split.metafile.outputs);
const [, { exports: names }] = outputs.find(([path]) => basename(path) === CORE);

const widget = await link("export { default } from './widget.js';", parts.get(CORE));
const tabs = await link(
  "import { makeTabs } from './tabs.js'; MADE = makeTabs;",
  `export const {${names.join()}} = CORE;`
);
const page = await build({ ...common, entryPoints: ['src/page.ts'] });
await mkdir(outdir, { recursive: true });
await write('widget.js', widget, `/*!\nContains parts of uPlot.\n\n${uplotLicense.trim()}\n*/\n`);
await write('tabs.js', `export default CORE => {let MADE; ${tabs} return MADE}`);
await write('page.js', page.outputFiles[0].text);
await writeFile(
  join(outdir, 'widget.css'),
  `/*! Contains uPlot's, under the licence in widget.js. */\n${parts.get('widget.css')}`
);

function leaveCoreOpen({ onResolve }) {
  onResolve({ filter: /\/core\.js$/ }, () => ({ path: CORE, external: true }));
}

/** Bundle parts with what they share. */
async function link(contents, shared) {
  const setup = ({ onResolve, onLoad }) => {
    onResolve({ filter: /./ }, ({ path }) => ({ path: basename(path), namespace: 'parts' }));
    onLoad({ filter: /./, namespace: 'parts' }, ({ path }) => ({
      contents: path === CORE ? shared : parts.get(path)
    }));
  };
  const plugins = [{ name: 'link', setup }];
  const done = await build({ ...common, stdin: { contents }, plugins });
  return done.outputFiles[0].text;
}

/** terser leaves out a twentieth more than esbuild alone. */
async function write(name, text, banner = '') {
  const { code } = await minify(text, { module: true, ecma: 2022, compress: { passes: 2 } });
  await writeFile(join(outdir, name), `${banner}${code}\n`);
}
