// uPlot without what our plots never use: times, a legend of its own, other kinds of curves and
// scales. No option leaves these out, so a switch of each is fixed here, and the minifier drops
// what cannot be reached any more. Each has to be found: another uPlot may need other words.
import { readFile } from 'node:fs/promises';

const FIXED = [
  [/\b(const|let) mode = (self|u)\.mode;/g, 'const mode = 1;'],
  [/\b(const|let) isTime = .*;/g, 'const isTime = false;'],
  [/\bgenTimeStuffs\(1(e-3)?\)/g, '[]'],
  [/\b(_time\w+) += .*;/g, '$1 = null;'],
  [/\bconst showLegend = .*;/g, 'const showLegend = false;'],
  // Ordinals, arcsinh and own scales; what remains is linear and logarithmic.
  [/\b(sc\.)?distr == (2|4|100) +\?/g, 'false ?'],
  // Functions for others' plugins, and bars, steps and splines.
  [/^uPlot\.assign = [^]*?(?=^export )/gm, '']
];

export const leanUplot = {
  name: 'lean uPlot',
  setup({ onLoad }) {
    onLoad({ filter: /uPlot\.esm\.js$/ }, async ({ path }) => {
      let contents = await readFile(path, 'utf8');
      for (const [pattern, fixed] of FIXED) {
        if (contents.search(pattern) < 0) {
          throw new Error(`uPlot has no ${pattern} any more: see uplot.mjs`);
        }
        contents = contents.replace(pattern, fixed);
      }
      return { contents };
    });
  }
};
