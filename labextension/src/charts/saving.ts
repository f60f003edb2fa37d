/** Saves a plot as a file: PNG from the canvas, SVG and CSV from its data. */
import type uPlot from 'uplot';

import type { Column } from './curves.js';
import type { IPicture } from './picture.js';
import { HEAD, svgOf, type ISvgLook } from './svg.js';
import { h } from '../dom/dom.js';
import type { Axis } from '../model/viewsettings.js';
import type { ITrans } from '../model/trans.js';

export type Format = 'png' | 'svg' | 'csv';

/** A selection of formats; `save` is called with the chosen one. */
export function saveSelect(trans: ITrans, save: (format: Format) => void): HTMLSelectElement {
  const label = trans.__('Save');
  const select = h(
    'select.det-save',
    { 'aria-label': trans.__('Save the plot as') },
    h('option', { value: '' }, label),
    ...['png', 'svg', 'csv'].map(one => h('option', { value: one }, one.toUpperCase()))
  );
  select.addEventListener('change', () => {
    const format = select.value as Format;
    select.value = '';
    save(format);
  });
  return select;
}

export async function savePlot(
  format: Format,
  picture: IPicture,
  plot: uPlot,
  look: ISvgLook,
  axis: Axis
): Promise<void> {
  const name = `${picture.title.replace(/[^\w.-]+/g, '-')}.${format}`;
  switch (format) {
    case 'png':
      download(name, await pngOf(picture, plot, look));
      break;
    case 'svg':
      download(name, new Blob([svgOf(picture, plot, look)], { type: 'image/svg+xml' }));
      break;
    case 'csv':
      download(name, new Blob([csvOf(picture, axis)], { type: 'text/csv' }));
  }
}

/** CSV with a row for each x at which a curve has a value; times in seconds. */
export function csvOf({ x, curves }: IPicture, axis: Axis): string {
  const columns = curves.flatMap(({ label, values, band }): [string, Column][] => [
    [label, values],
    ...(band === undefined
      ? []
      : ([
          [`${label} (lowest)`, band.low],
          [`${label} (highest)`, band.high]
        ] as [string, Column][]))
  ]);
  const head = [axis === 'time' ? 'seconds' : axis, ...columns.map(([label]) => label)]
    .map(quoted)
    .join(',');
  const rows = x.flatMap((at, i) => {
    const cells = columns.map(([, values]) => values[i] ?? '');
    return cells.some(cell => cell !== '') ? [[at, ...cells].join(',')] : [];
  });
  return [head, ...rows, ''].join('\r\n');
}

const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;
const NUMBER = /^[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf|nan)$/i;

/** Quotes a text for CSV; formulas get an apostrophe, as in client/tables.py. */
export function quoted(label: string): string {
  const text = FORMULA.test(label) && !NUMBER.test(label) ? `'${label}` : label;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The canvas in the resolution of the screen, below the same head as in the SVG. */
async function pngOf(picture: IPicture, plot: uPlot, look: ISvgLook): Promise<Blob> {
  const drawn = plot.ctx.canvas;
  const density = drawn.width / plot.width;
  const canvas = document.createElement('canvas');
  canvas.width = drawn.width;
  canvas.height = drawn.height + HEAD * density;
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  context.fillStyle = look.theme.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const head = new Image();
  const svg = svgOf(
    { ...picture, curves: picture.curves.map(withoutValues), marks: [] },
    plot,
    look
  );
  head.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await head.decode();
  context.drawImage(head, 0, 0, canvas.width, canvas.height);
  context.fillRect(0, HEAD * density, canvas.width, drawn.height);
  context.drawImage(drawn, 0, HEAD * density);
  return new Promise((resolve, reject) =>
    canvas.toBlob(blob =>
      blob === null ? reject(new Error('The browser has made no picture.')) : resolve(blob)
    )
  );
}

function withoutValues({ label, color, isDashed, isHatched, isFaint }: IPicture['curves'][number]) {
  return {
    ...{ label, color, values: [] },
    ...{ isDashed: isDashed ?? false, isHatched: isHatched ?? false, isFaint: isFaint ?? false }
  };
}

export function download(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
