/** The best value so far, over time: a line with steps; pure. */
import type { IImprovement, ISearch } from '../model/state.js';
import { spanText } from '../model/format.js';
import { linearScale, robustRange, type ITick } from '../model/scales.js';

export interface IStepsLayout {
  /** A corner for each improvement, and the end at the present. */
  points: { x: number; y: number; improvement: IImprovement }[];
  endX: number;
  yTicks: { y: number; label: string }[];
  xTicks: { x: number; label: string }[];
}

const LEFT = 46;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 24;
const SPANS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400
];

export function layoutSteps(
  search: ISearch,
  elapsedS: number,
  width: number,
  height: number
): IStepsLayout {
  const { improvements } = search;
  const end = Math.max(1, elapsedS, improvements.at(-1)?.after_s ?? 0);
  const x = (seconds: number): number => LEFT + ((width - LEFT - RIGHT) * seconds) / end;
  // The first values are often far off and soon forgotten.
  const values = improvements.map(one => one.value);
  const scale = linearScale(...robustRange(values, search.smaller_is_better), 4);
  const y = (value: number): number => TOP + (height - TOP - BOTTOM) * (1 - scale.place(value));
  return {
    points: improvements.map(one => ({ x: x(one.after_s), y: y(one.value), improvement: one })),
    endX: x(end),
    yTicks: scale.ticks.map((tick: ITick) => ({ y: y(tick.value), label: tick.label })),
    xTicks: timeTicks(end, Math.max(2, Math.floor(width / 90))).map(one => ({
      x: x(one.value),
      label: one.label
    }))
  };
}

/** Round spans of time up to `end`, at most `limit`. */
export function timeTicks(end: number, limit: number): ITick[] {
  const day = 86_400;
  const span =
    SPANS_S.find(one => end / one <= limit) ?? day * Math.ceil(end / day / Math.max(1, limit));
  return Array.from({ length: Math.floor(end / span) + 1 }, (_, i) => ({
    value: i * span,
    label: spanText(i * span)
  }));
}
