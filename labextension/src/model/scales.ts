/** Scales: map values to 0..1 and back, with round ticks; pure. */
import { formatNumber } from './format.js';
import type { IAxis } from './state.js';

export interface ITick {
  value: number;
  label: string;
}

export interface IScale {
  /** Maps a value to 0..1, clamped. */
  place(value: number): number;
  /** Maps 0..1 to a value. */
  value(place: number): number;
  ticks: ITick[];
}

const clamp = (place: number): number => Math.min(1, Math.max(0, place));

/** A linear scale; with `isWhole`, ticks are integers. */
export function linearScale(low: number, high: number, maxTicks = 5, isWhole = false): IScale {
  const span = high - low;
  const ticks = roundNumbers(low, high, maxTicks, isWhole);
  return {
    place: value => (span > 0 ? clamp((value - low) / span) : 0.5),
    value: place => low + place * span,
    ticks: ticks.map(value => ({ value, label: tickLabel(value) }))
  };
}

/** A logarithmic scale; ticks are powers of ten, or round numbers if those are too few. */
export function logScale(low: number, high: number, maxTicks = 6): IScale {
  const inner = linearScale(Math.log10(low), Math.log10(high));
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / maxTicks));
  const powers: number[] = [];
  for (let power = first; power <= last; power += stride) {
    powers.push(Number(`1e${power}`));
  }
  const values = powers.length > 1 ? powers : [low, high];
  return {
    place: value => (value > 0 ? inner.place(Math.log10(value)) : 0),
    value: place => 10 ** inner.value(place),
    ticks: values.map(value => ({ value, label: tickLabel(value) }))
  };
}

/** A scale of list indices; each label is in the middle of its share. */
export function categoryScale(labels: readonly string[], maxTicks = 12): IScale {
  const count = Math.max(1, labels.length);
  const stride = Math.ceil(count / maxTicks);
  return {
    place: value => clamp((value + 0.5) / count),
    value: place => place * count - 0.5,
    ticks: labels.map((label, value) => ({ value, label })).filter((_, i) => i % stride === 0)
  };
}

export function axisScale(axis: IAxis): IScale {
  if (axis.scale === 'category') {
    return categoryScale(axis.labels);
  }
  return axis.scale === 'log'
    ? logScale(axis.low, axis.high)
    : linearScale(axis.low, axis.high, undefined, axis.is_whole);
}

/** Formats a value of an axis. */
export function axisText(axis: IAxis, place: number | null): string {
  if (place === null) {
    return '–';
  }
  if (axis.scale === 'category') {
    return axis.labels[place] ?? '–';
  }
  return axis.is_whole ? String(place) : formatNumber(place);
}

/** At most `limit` round numbers from `low` to `high`; integers if `isWhole`. */
export function roundNumbers(low: number, high: number, limit: number, isWhole = false): number[] {
  const rough = Math.max((high - low) / limit, isWhole && high > low ? 1 : 0);
  if (!(rough > 0) || !Number.isFinite(rough)) {
    return [low];
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(digit => digit * power).find(one => one >= rough) ?? 10 * power;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) =>
    Number(((first + i) * step).toPrecision(12))
  );
}

function tickLabel(value: number): string {
  const size = Math.abs(value);
  const short = Number(value.toPrecision(4));
  return size !== 0 && (size < 1e-3 || size >= 1e5)
    ? short.toExponential().replace('e+', 'e')
    : String(short);
}

/**
 * The range to draw of a metric: without values far worse than most, which are drawn at the edge.
 * Otherwise one diverged trial would compress all others into a line.
 */
export function robustRange(values: readonly number[], smallerIsBetter: boolean): [number, number] {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (sorted.length === 0) {
    return [0, 1];
  }
  const at = (share: number): number => sorted[Math.round(share * (sorted.length - 1))] as number;
  const reach = 4 * (at(0.75) - at(0.25));
  const isWorth = (value: number): boolean =>
    smallerIsBetter ? value <= at(0.75) + reach : value >= at(0.25) - reach;
  const inside = reach > 0 ? sorted.filter(isWorth) : sorted;
  const low = inside[0] as number;
  const high = inside.at(-1) as number;
  const air = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
  return [low - air, high + air];
}
