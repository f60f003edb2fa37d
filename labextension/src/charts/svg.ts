/** Draws a plot as SVG from its data, in the colours of the screen and without scripts. */
import type uPlot from 'uplot';

import type { Column } from './curves.js';
import { LABEL_HEIGHT, placedMarks } from './marklabels.js';
import type { ICurve, IPicture } from './picture.js';
import type { ITheme } from '../dom/theme.js';

export interface ISvgLook {
  theme: ITheme;
  /** Resolves a CSS colour. */
  resolved: (color: string) => string;
}

/** Maps a value to pixels. */
type Place = (value: number) => number;

export const HEAD = 40;
const LETTER = 6.2;

/** The picture as drawn in `plot`, below its title and legend. */
export function svgOf(picture: IPicture, plot: uPlot, look: ISvgLook): string {
  const density = plot.bbox.width / Math.max(1, plot.over.clientWidth);
  const [left, top, width, height] = [
    plot.bbox.left / density,
    plot.bbox.top / density + HEAD,
    plot.bbox.width / density,
    plot.bbox.height / density
  ];
  const x: Place = value => left + plot.valToPos(value, 'x');
  const y: Place = value => top + plot.valToPos(value, 'y');
  const { theme } = look;
  const clip = `<clipPath id="area"><rect${attributes({ x: left, y: top, width, height })}/></clipPath>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg"${attributes({
      width: plot.width,
      height: plot.height + HEAD,
      'font-family': 'sans-serif',
      'font-size': 11
    })}>`,
    `<title>${escaped(picture.title)}</title>${clip}`,
    `<rect width="100%" height="100%"${attributes({ fill: theme.ground })}/>`,
    text(picture.title, { x: 4, y: 15, fill: theme.strong, 'font-weight': 600, 'font-size': 13 }),
    legendOf(picture, look),
    ...gridOf(plot, x, y, { left, top, width, height }, theme),
    `<g clip-path="url(#area)">`,
    ...(picture.kind === 'stack' ? areas(picture, plot, look, x, y) : lines(picture, look, x, y)),
    ...marksOf(picture, x, { left, top, width, height }, theme),
    '</g></svg>'
  ].join('\n');
}

function legendOf({ curves, kind }: IPicture, { theme, resolved }: ISvgLook): string {
  let at = 4;
  const items = curves
    .filter(one => !one.isFaint)
    .map(one => {
      const width = kind === 'stack' ? 8 : 2;
      const key = path(`M${at} 30H${at + 14}`, {
        stroke: resolved(one.color),
        'stroke-width': width,
        'stroke-dasharray': one.isDashed ? '6 4' : null,
        'stroke-opacity': one.isHatched ? 0.5 : null
      });
      const name = text(one.label, { x: at + 19, y: 34, fill: theme.strong });
      at += 33 + LETTER * one.label.length;
      return key + name;
    });
  return items.join('');
}

interface IArea {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Internal fields of uPlot with the ticks, which its typings lack. */
type Ticks = uPlot.Axis & { _splits?: number[]; _values?: (string | null)[] };

function gridOf(plot: uPlot, x: Place, y: Place, area: IArea, theme: ITheme): string[] {
  const { left, top, width, height } = area;
  const [across, up] = plot.axes as [Ticks, Ticks];
  const line = (d: string): string => path(d, { stroke: theme.grid });
  const ticks = (axis: Ticks, draw: (value: number, label: string) => string): string[] =>
    (axis._splits ?? []).map((value, i) => draw(value, axis._values?.[i] ?? ''));
  return [
    ...ticks(across, (value, label) => {
      const at = round(x(value));
      const below = { x: at, y: top + height + 15, fill: theme.text, 'text-anchor': 'middle' };
      return line(`M${at} ${top}V${top + height}`) + text(label, below);
    }),
    ...ticks(up, (value, label) => {
      const at = round(y(value));
      const beside = { x: left - 5, y: at + 4, fill: theme.text, 'text-anchor': 'end' };
      return line(`M${left} ${at}H${left + width}`) + text(label, beside);
    })
  ];
}

function lines({ x: xs, curves }: IPicture, look: ISvgLook, x: Place, y: Place): string[] {
  return curves.flatMap((one: ICurve) => {
    const stroke = one.isFaint ? look.theme.text : look.resolved(one.color);
    const dash = { 'stroke-dasharray': one.isDashed ? '6 4' : null };
    const isPale = one.isFaint === true || one.average !== undefined;
    const shape = { stroke, ...dash, 'stroke-opacity': isPale ? 0.35 : null };
    const drawn = [path(lineOf(xs, one.values, x, y), { ...shape, 'stroke-width': 1.5 })];
    if (one.band !== undefined) {
      drawn.unshift(path(bandOf(xs, one.band, x, y), { fill: stroke, 'fill-opacity': 0.2 }));
    }
    if (one.average !== undefined) {
      drawn.push(path(lineOf(xs, one.average, x, y), { stroke, ...dash, 'stroke-width': 2 }));
    }
    if (one.hasDots) {
      drawn.push(...dotsOf(xs, one.values, x, y, stroke));
    }
    return drawn;
  });
}

/** Drawn from the top of the stack to its bottom, each over the one before. */
function areas(
  { x: xs, curves }: IPicture,
  plot: uPlot,
  look: ISvgLook,
  x: Place,
  y: Place
): string[] {
  return curves
    .map((one, i) => {
      const column = plot.data[i + 1] as Column;
      const floor = column.map(value => (value === null || value === undefined ? value : 0));
      const fill = { fill: look.resolved(one.color), stroke: look.theme.ground };
      const d = bandOf(xs, { low: floor, high: column }, x, y);
      const under = path(d, { fill: look.theme.ground });
      return under + path(d, { ...fill, 'fill-opacity': one.isHatched ? 0.5 : null });
    })
    .reverse();
}

function marksOf(
  { marks = [] }: IPicture,
  place: Place,
  { left, top, width, height }: IArea,
  theme: ITheme
): string[] {
  const widthOf = (label: string): number => LETTER * label.length;
  return placedMarks(marks, { from: left, to: left + width, place, widthOf }).map(
    ({ at, label, align, labelAt, row }) => {
      const line = { stroke: theme.strong, 'stroke-dasharray': '2 3' };
      const words = text(label, {
        ...{ x: round(labelAt), y: top + 10 + row * LABEL_HEIGHT, fill: theme.strong },
        'text-anchor': align === 'left' ? 'start' : 'end'
      });
      return path(`M${round(at)} ${top}v${height}`, line) + words;
    }
  );
}

function dotsOf(xs: readonly number[], values: Column, x: Place, y: Place, fill: string): string[] {
  return values.flatMap((value, i) =>
    value === null || value === undefined
      ? []
      : [
          `<circle r="3"${attributes({ cx: round(x(xs[i] as number)), cy: round(y(value)), fill })}/>`
        ]
  );
}

/** The path through the values; `null` is a gap, `undefined` is skipped. */
export function lineOf(xs: readonly number[], values: Column, x: Place, y: Place): string {
  let isDown = false;
  let d = '';
  values.forEach((value, i) => {
    if (value === null) {
      isDown = false;
    } else if (value !== undefined) {
      d += `${isDown ? 'L' : 'M'}${round(x(xs[i] as number))} ${round(y(value))}`;
      isDown = true;
    }
  });
  return d;
}

function bandOf(
  xs: readonly number[],
  { low, high }: { low: Column; high: Column },
  x: Place,
  y: Place
): string {
  const parts: string[] = [];
  let from = 0;
  const close = (to: number): void => {
    const there = lineOf(xs.slice(from, to), high.slice(from, to), x, y);
    const back = lineOf(xs.slice(from, to).reverse(), low.slice(from, to).reverse(), x, y);
    if (there !== '') {
      parts.push(`${there}L${back.slice(1)}Z`);
    }
    from = to + 1;
  };
  high.forEach((value, i) => {
    if (value === null) {
      close(i);
    }
  });
  close(high.length);
  return parts.join('');
}

type Values = Record<string, string | number | null>;

function path(d: string, values: Values): string {
  return d === '' ? '' : `<path${attributes({ fill: 'none', d, ...values })}/>`;
}

function text(words: string, values: Values): string {
  return `<text${attributes(values)}>${escaped(words)}</text>`;
}

function attributes(values: Values): string {
  return Object.entries(values)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => ` ${name}="${escaped(String(value))}"`)
    .join('');
}

function escaped(words: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  return words.replace(/[&<>"]/g, letter => names[letter] as string);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
