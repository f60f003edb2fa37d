// Bundles the anywidget into the Python package: two modules and one style sheet.
//
//     widget.js    what every view needs; each widget carries it
//     tabs.js      the tabs that are fetched when one is opened: a function of what it shares with
//                  widget.js (src/core.ts)
//
// The last word is the folder to write to; hatch_build.py and `npm run build` use the default.
import { readFile, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';

import { build } from 'esbuild';

const outdir = process.argv[2] ?? '../det_jupyter/notebook/static';
const uplotLicense = await readFile('node_modules/uplot/LICENSE', 'utf8');
const banner = `/*!\nContains uPlot (https://github.com/leeoniya/uPlot).\n\n${uplotLicense.trim()}\n*/`;
const here = process.cwd();
const nameOf = path => relative(here, path).replaceAll('\\', '/');
const common = {
  outdir,
  bundle: true,
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  // Private members get short names, the same in both modules.
  mangleProps: /^_[a-z]/,
  reserveProps: /^_n$/, // of translations
  logLevel: 'warning'
};

/** Build widget.js; it keeps these of its modules for tabs.js. */
function buildWidget(shared, mangleCache, write) {
  const imports = shared.map((name, i) => `import * as m${i} from './${relative('src', name)}';`);
  const names = shared.map((name, i) => `${JSON.stringify(name)}: m${i}`);
  const contents = `${imports.join('\n')}\nexport const core = {${names.join(', ')}};`;
  const fill = ({ onLoad }) =>
    onLoad({ filter: /src[/\\]core\.ts$/ }, () => ({
      contents,
      loader: 'ts',
      resolveDir: join(here, 'src')
    }));
  return build({
    ...common,
    entryPoints: { widget: 'src/widget.ts' },
    format: 'esm',
    banner: { js: banner, css: banner },
    plugins: [{ name: 'core', setup: fill }],
    metafile: true,
    mangleCache,
    write
  });
}

const first = await buildWidget([], {}, false);
const known = new Set(Object.keys(first.metafile.inputs));
const shared = new Set();
const takeFromCore = ({ onResolve, onLoad, resolve }) => {
  onResolve({ filter: /./ }, async ({ path, pluginData, ...where }) => {
    if (pluginData === 'asked' || where.kind === 'entry-point') {
      return undefined;
    }
    const { kind, importer, resolveDir } = where;
    const found = await resolve(path, { kind, importer, resolveDir, pluginData: 'asked' });
    const name = nameOf(found.path);
    if (!known.has(name)) {
      return found;
    }
    shared.add(name);
    return { path: name, namespace: 'core' };
  });
  onLoad({ filter: /./, namespace: 'core' }, ({ path }) => ({
    contents: `module.exports = CORE[${JSON.stringify(path)}];`
  }));
};
const tabs = await build({
  ...common,
  entryPoints: { tabs: 'src/alltabs.ts' },
  format: 'iife',
  globalName: 'TABS',
  mangleCache: first.mangleCache,
  plugins: [{ name: 'core', setup: takeFromCore }],
  write: false
});
await buildWidget([...shared].sort(), tabs.mangleCache, true);
await writeFile(
  join(outdir, 'tabs.js'),
  `export default CORE => {${tabs.outputFiles[0].text}return TABS}\n`
);
