/** Makes the pictures of metrics: looks, smoothing and axis of curves; pure. */
import {
  isDense,
  lengthOf,
  smoothed,
  toColumns,
  type Column,
  type IPoints
} from '../charts/curves.js';
import { lookOf, type ICurve, type IPicture, type IPictureMark } from '../charts/picture.js';
import { formatNumber } from '../model/format.js';
import type { Axis } from '../model/viewsettings.js';
import type { ITrans } from '../model/trans.js';
import { formatTick } from '../charts/uplotparts.js';
import type { ITrace } from './traces.js';

export interface ILook {
  axis: Axis;
  logX: boolean;
  logY: boolean;
  /** The half width of smoothing, as a share of the shown range; 0: none. */
  smoothing: number;
  stepsPerEpoch: number | null;
  /** The shown range, if zoomed. */
  zoom: readonly [number, number] | null;
  /** Colours are assigned in this order. */
  trialIds: readonly number[];
}

const MAX_DOTS = 60;
const GROUPS = ['training', 'validation'];

export function pictureOf(
  title: string,
  traces: readonly ITrace[],
  look: ILook,
  marks: IPictureMark[],
  trans: ITrans
): IPicture {
  const shown = traces.map(trace => alongAxis(trace, look)).filter(one => one.x.length > 0);
  const groups = [...new Set([...GROUPS, ...shown.map(one => one.group)])];
  const logY = look.logY && shown.some(one => one.mid.some(value => (value ?? 0) > 0));
  const span = smoothingSpan(shown, look);
  const points = shown.flatMap(one => columnsOf(one, span, logY));
  const [x, ...columns] = toColumns(points);
  let next = 0;
  const take = (): Column => columns[next++] as Column;
  const curves = shown.map((one): ICurve => {
    const several = look.trialIds.length > 1;
    const place = several ? look.trialIds.indexOf(one.trialId) : groups.indexOf(one.group);
    return {
      label: several ? trans.__('trial %1 %2', one.trialId, one.group).trimEnd() : one.group,
      ...lookOf(place),
      values: take(),
      ...(hasBand(one) ? { band: { low: take(), high: take() } } : {}),
      ...(isSmoothed(one, span) ? { average: take() } : {}),
      hasDots: !one.isLine && one.x.length <= MAX_DOTS
    };
  });
  return {
    title,
    kind: 'lines',
    x,
    curves,
    text: formatNumber,
    tick: formatTick,
    logY,
    marks,
    empty: curves.length > 0 ? '' : trans.__('nothing to draw')
  };
}

/** The range of all traces; a logarithmic axis begins with the first point above 0. */
export function wholeOf(traces: readonly ITrace[], look: ILook): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const { x } of traces.map(trace => alongAxis(trace, look))) {
    low = Math.min(low, x[0] ?? Infinity);
    high = Math.max(high, x.at(-1) ?? -Infinity);
  }
  if (low > high) {
    return look.logX ? [1, 10] : [0, 1];
  }
  return look.logX ? [low, Math.max(high, low * 1.1)] : [Math.min(0, low), high];
}

function alongAxis(trace: ITrace, { axis, logX, stepsPerEpoch }: ILook): ITrace {
  const unit = axis === 'epoch' ? stepsPerEpoch : 1;
  if (unit === null) {
    return { ...trace, x: [] };
  }
  const x = unit === 1 ? trace.x : trace.x.map(value => value / unit);
  const from = logX ? x.findIndex(value => value > 0) : 0;
  if (from === 0) {
    return { ...trace, x };
  }
  const cut = <T>(values: T[]): T[] => (from < 0 ? [] : values.slice(from));
  const { mid, low = [], high = [] } = trace;
  return { ...trace, x: cut(x), mid: cut(mid), low: cut(low), high: cut(high) };
}

/** The columns of a curve: values, band and average. */
function columnsOf(one: ITrace, span: number, logY: boolean): IPoints[] {
  const of = (values: readonly (number | null)[]): IPoints => ({
    steps: one.x,
    values: values.map(value => drawable(value, logY))
  });
  const raw = of(one.mid);
  const columns = [raw];
  if (hasBand(one)) {
    columns.push(of(one.low ?? []), of(one.high ?? []));
  }
  if (isSmoothed(one, span)) {
    columns.push({ ...raw, values: smoothed(raw, span) });
  }
  return columns;
}

/** Whether each point of a trace aggregates several measured points. */
function hasBand({ mid, low, high }: ITrace): boolean {
  return mid.some((_, i) => low?.[i] !== high?.[i]);
}

/** The half width of smoothing, the same for all curves; 0 if none is dense. */
function smoothingSpan(traces: readonly ITrace[], { smoothing, zoom }: ILook): number {
  const lines = traces.filter(one => one.isLine).map(({ x }) => ({ steps: x }));
  const length = zoom === null ? lengthOf(lines) : zoom[1] - zoom[0];
  return lines.some(isDense) ? length * smoothing : 0;
}

function isSmoothed({ isLine }: ITrace, span: number): boolean {
  return isLine && span > 0;
}

/** Larger values make differences overflow, so that uPlot draws nothing. */
function drawable(value: number | null, isLog: boolean): number | null {
  return value !== null && Math.abs(value) < 1e100 && (value > 0 || !isLog) ? value : null;
}
