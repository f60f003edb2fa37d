/** Reads the page's colours and fonts for the canvas, which has no CSS variables. */

/** The number of colours; further curves are dashed. */
export const NUM_COLORS = 4;
/** The number of shades, from the worst trial to the best. */
export const NUM_SHADES = 9;

export interface ITheme {
  series: string[];
  /** From the worst to the best. */
  shades: string[];
  text: string;
  strong: string;
  ground: string;
  grid: string;
  brand: string;
  good: string;
  warn: string;
  bad: string;
  font: string;
}

/** The colour of a curve with this look; the same as in the style sheet. */
export function colorOf(theme: ITheme, look: number): string {
  return theme.series[look % NUM_COLORS] as string;
}

export function isDashed(look: number): boolean {
  return look >= NUM_COLORS;
}

/** Resolve colours at `node`, where variables may be overridden. */
export function readColors(node: Element, colors: readonly string[]): Map<string, string> {
  return probed(node, resolve => new Map(colors.map(color => [color, resolve(color)])));
}

/** Read the theme at `node`. */
export function readTheme(node: Element): ITheme {
  return probed(node, themeOf);
}

function probed<T>(node: Element, read: (resolve: Resolve, style: CSSStyleDeclaration) => T): T {
  const probe = document.createElement('span');
  probe.hidden = true;
  // With forced colours, all curves have the same colour: they differ by dashes.
  probe.style.setProperty('forced-color-adjust', 'none');
  node.append(probe);
  const style = getComputedStyle(probe);
  const found = read(color => {
    probe.style.color = color;
    return style.color;
  }, style);
  probe.remove();
  return found;
}

type Resolve = (color: string) => string;

function themeOf(resolve: Resolve, style: CSSStyleDeclaration): ITheme {
  const series = Array.from({ length: NUM_COLORS }, (_, i) => resolve(`var(--det-series-${i})`));
  const shades = Array.from({ length: NUM_SHADES }, (_, i) => {
    const share = Math.abs(2 * (i / (NUM_SHADES - 1)) - 1) * 100;
    const end = 2 * i < NUM_SHADES ? 'worst' : 'best';
    return resolve(`color-mix(in srgb, var(--det-${end}) ${share}%, var(--det-middle))`);
  });
  return {
    series,
    shades,
    text: resolve('var(--det-text-quiet)'),
    strong: resolve('var(--det-text)'),
    ground: resolve('var(--det-ground)'),
    grid: resolve('var(--det-grid)'),
    brand: resolve('var(--det-brand)'),
    good: resolve('var(--det-good)'),
    warn: resolve('var(--det-warn)'),
    bad: resolve('var(--det-bad)'),
    font: `11px ${style.fontFamily}`
  };
}

/** Call `changed` when the theme may have changed; returns a function that ends that. */
export function watchTheme(changed: () => void): () => void {
  // JupyterLab, Notebook and VS Code set attributes of the body, Colab one of the root.
  const observer = new MutationObserver(changed);
  const attributeFilter = ['class', 'style', 'theme', 'data-jp-theme-name', 'data-vscode-theme-id'];
  observer.observe(document.documentElement, { attributes: true, attributeFilter });
  observer.observe(document.body, { attributes: true, attributeFilter });
  const query = matchMedia('(prefers-color-scheme: dark)');
  query.addEventListener('change', changed);
  return () => {
    observer.disconnect();
    query.removeEventListener('change', changed);
  };
}
