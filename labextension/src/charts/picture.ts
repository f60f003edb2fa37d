/** Curves of one quantity, or its stacked parts, and their options for uPlot. */
import type uPlot from 'uplot';

import type { Column } from './curves.js';
import { LABEL_HEIGHT, placedMarks } from './marklabels.js';
import type { Axis } from '../model/viewsettings.js';
import { NUM_COLORS, type ITheme } from '../dom/theme.js';
import {
  axesOf,
  distribution,
  frameOf,
  loneFilter,
  movesOf,
  type IMoves,
  type Range
} from './uplotparts.js';

export interface ICurve {
  label: string;
  /** A CSS colour; `lookOf` returns those of the theme. */
  color: string;
  isDashed?: boolean;
  /** For a part of a stack that has the same colour as another part. */
  isHatched?: boolean;
  /** Drawn behind the others, without a name. */
  isFaint?: boolean;
  values: Column;
  /** Whether each point is drawn as a dot. */
  hasDots?: boolean;
  /** The moving average, in front of which the values are pale. */
  average?: Column;
  /** The smallest and largest value of each point, drawn as a band. */
  band?: { low: Column; high: Column };
}

/** An event at a position of the x axis. */
export interface IPictureMark {
  x: number;
  label: string;
}

export interface IPicture {
  title: string;
  /** The heading above it, for all pictures of the section. */
  section?: string;
  /** Whether it is as wide as the group. */
  isWide?: boolean;
  kind: 'lines' | 'stack';
  x: number[];
  curves: ICurve[];
  /** Formats a value with its unit. */
  text: (value: number) => string;
  /** Formats a value beside the y axis; `text` by default. */
  tick?: (value: number) => string;
  logY?: boolean;
  /** The y axis contains at least this range. */
  bounds?: Range;
  marks?: IPictureMark[];
  /** Shown instead of the picture if it has no values. */
  empty: string;
}

/** The properties that all plots of a group share. */
export interface IGroupFrame {
  range: Range;
  axis: Axis;
  logX: boolean;
}

const BAND_ALPHA = 0.2;
const FAINT_ALPHA = 0.4;
const RAW_ALPHA = 0.32;

/** The look of the n-th curve: as many colours as the theme has, then the same dashed. */
export function lookOf(n: number): Pick<ICurve, 'color' | 'isDashed'> {
  return {
    color: `var(--det-series-${n % NUM_COLORS})`,
    isDashed: Math.floor(n / NUM_COLORS) % 2 === 1
  };
}

export interface IPictureSource extends Omit<IMoves, 'range' | 'cursorColor'> {
  picture: () => IPicture;
  frame: () => IGroupFrame;
  theme: () => ITheme;
  /** Resolves a CSS colour for the canvas. */
  resolved: (color: string) => string;
}

/** The properties that are fixed when a plot is made; a new plot is made when they change. */
export function pictureShape(picture: IPicture, frame: IGroupFrame): string {
  const { kind, logY = false, bounds = null, curves } = picture;
  const looks = curves.map(one => [
    one.color,
    one.isDashed,
    one.isHatched,
    one.isFaint,
    one.hasDots,
    one.average !== undefined,
    one.band !== undefined
  ]);
  return JSON.stringify([kind, logY, bounds, frame.axis, frame.logX, looks]);
}

export function pictureColumns(picture: IPicture): uPlot.AlignedData {
  if (picture.kind === 'stack') {
    return [picture.x, ...stacked(picture.curves.map(one => one.values))];
  }
  const hasBand = picture.curves.flatMap(one => (one.band === undefined ? [] : [one.band]));
  const bands = hasBand.flatMap(({ low, high }) => [low, high]);
  const averages = picture.curves.flatMap(({ average }) =>
    average === undefined ? [] : [average]
  );
  return [picture.x, ...picture.curves.map(one => one.values), ...bands, ...averages];
}

/** Columns summed cumulatively; a gap where no column has a value. */
export function stacked(columns: readonly Column[]): (number | null)[][] {
  const length = columns[0]?.length ?? 0;
  const isGap = Array.from({ length }, (_, i) => columns.every(one => (one[i] ?? null) === null));
  let below = new Array<number>(length).fill(0);
  return columns.map(column => {
    below = below.map((sum, i) => sum + (column[i] ?? 0));
    return below.map((sum, i) => (isGap[i] ? null : sum));
  });
}

export function pictureOptions(source: IPictureSource, width: number): uPlot.Options {
  const { kind, logY = false, bounds, tick, text } = source.picture();
  const { axis, logX } = source.frame();
  const { x, ...frame } = frameOf(() => source.frame().range, { axis, logX, width });
  const { hooks, ...moves } = movesOf({
    ...source,
    range: () => source.frame().range,
    cursorColor: (_plot, series) => cursorColor(source, series)
  });
  const y: uPlot.Scale = { distr: distribution(logY) };
  if (kind === 'stack' || bounds !== undefined) {
    const [low, high] = bounds ?? [0, 0];
    const soft = (end: number): uPlot.Range.Limit => ({ pad: 0.08, soft: end, mode: 1 });
    y.range = { min: soft(low), max: soft(high) };
  }
  return {
    ...frame,
    scales: {
      x,
      y
    },
    ...(kind === 'stack' ? stackLook(source) : lineLook(source)),
    axes: axesOf({ theme: source.theme, axis, logX, logY, tick: tick ?? text }),
    ...moves,
    hooks: { ...hooks, draw: [plot => drawMarks(plot, source)] }
  };
}

function lineLook(source: IPictureSource): Pick<uPlot.Options, 'series' | 'bands'> {
  const { curves } = source.picture();
  const lines = curves.map((one): uPlot.Series => {
    const { isFaint, hasDots, average } = one;
    const stroke = (): string => strokeOf(one, source);
    const filter = hasDots ? () => null : loneFilter;
    const points = { show: true, filter, size: hasDots ? 6 : 5, fill: stroke, stroke, width: 0 };
    const alpha = isFaint ? FAINT_ALPHA : average ? RAW_ALPHA : 1;
    return { label: one.label, stroke, points, alpha, width: alpha < 1 ? 1 : 1.5, ...dashOf(one) };
  });
  const averages = curves.flatMap((one): uPlot.Series[] => {
    const stroke = (): string => strokeOf(one, source);
    const points = { show: false };
    return one.average ? [{ stroke, points, width: 2, ...dashOf(one) }] : [];
  });
  const banded = curves.filter(one => one.band !== undefined);
  const edge: uPlot.Series = { stroke: 'transparent', width: 0, points: { show: false } };
  const bands = banded.map(({ color }, i): uPlot.Band => {
    const low = 1 + curves.length + 2 * i;
    return { series: [low + 1, low], fill: () => faded(source.resolved(color)) };
  });
  return { series: [{}, ...lines, ...banded.flatMap(() => [edge, edge]), ...averages], bands };
}

function strokeOf({ isFaint, color }: ICurve, source: IPictureSource): string {
  return isFaint ? source.theme().text : source.resolved(color);
}

function dashOf({ isDashed }: ICurve): Pick<uPlot.Series, 'dash'> {
  return isDashed ? { dash: [6, 4] } : {};
}

function stackLook(source: IPictureSource): Pick<uPlot.Options, 'series' | 'bands'> {
  const { curves } = source.picture();
  const series = curves.map((one): uPlot.Series => {
    const fill = (plot: uPlot): CanvasRenderingContext2D['fillStyle'] =>
      one.isHatched ? hatched(plot.ctx, source.resolved(one.color)) : source.resolved(one.color);
    return {
      label: one.label,
      fill,
      stroke: () => source.theme().ground,
      width: 0.5,
      points: { show: false }
    };
  });
  const bands = curves.slice(1).map((_, i): uPlot.Band => ({ series: [i + 2, i + 1] }));
  return { series: [{}, ...series], bands };
}

function cursorColor(source: IPictureSource, series: number): string {
  const { kind, curves } = source.picture();
  const curve = curves[series - 1];
  const isShown = kind === 'lines' && curve !== undefined && !curve.isFaint;
  return isShown ? source.resolved(curve.color) : 'transparent';
}

function faded(color: string): string {
  return `color-mix(in srgb, ${color} ${BAND_ALPHA * 100}%, transparent)`;
}

const patterns = new Map<string, CanvasPattern>();

/** A striped pattern of a colour. */
function hatched(context: CanvasRenderingContext2D, color: string): CanvasPattern | string {
  const size = Math.round(7 * (devicePixelRatio || 1));
  const key = `${color} ${size}`;
  const known = patterns.get(key);
  if (known !== undefined) {
    return known;
  }
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const brush = tile.getContext('2d');
  if (brush === null) {
    return color;
  }
  brush.fillStyle = faded(color);
  brush.fillRect(0, 0, size, size);
  brush.strokeStyle = color;
  brush.lineWidth = size / 3.5;
  for (const shift of [-size, 0, size]) {
    brush.beginPath();
    brush.moveTo(shift - 1, size + 1);
    brush.lineTo(shift + size + 1, -1);
    brush.stroke();
  }
  const pattern = context.createPattern(tile, 'repeat');
  if (pattern !== null) {
    patterns.set(key, pattern);
  }
  return pattern ?? color;
}

function drawMarks(plot: uPlot, source: IPictureSource): void {
  const { marks = [] } = source.picture();
  const { ctx, bbox } = plot;
  const density = devicePixelRatio || 1;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = source.theme().strong;
  ctx.lineWidth = density;
  ctx.setLineDash([2 * density, 3 * density]);
  ctx.font = source.theme().font.replace('11px', `${11 * density}px`);
  ctx.textBaseline = 'top';
  const placed = placedMarks(marks, {
    ...{ from: bbox.left, to: bbox.left + bbox.width, density },
    place: x => plot.valToPos(x, 'x', true),
    widthOf: label => ctx.measureText(label).width
  });
  for (const { at, label, align, labelAt, row } of placed) {
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.textAlign = align;
    ctx.fillText(label, labelAt, bbox.top + row * LABEL_HEIGHT * density);
  }
  ctx.restore();
}
