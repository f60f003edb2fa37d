/** The parts of a batch's time: looks, and the times of ranks. */
import type { ICurve } from '../charts/picture.js';
import { PARTS, SECTION, STATISTICS } from '../model/state.js';
import type { ISeries, ISeriesPage } from '../model/answers.js';

type Look = Pick<ICurve, 'color' | 'isHatched'>;

const look = (kind: string, isHatched = false): Look => ({
  color: `var(--det-time-${kind})`,
  isHatched
});

/** The looks of parts, all distinct, in the colours of the verdict's kinds. */
const LOOKS: Record<string, Look> = {
  dataloader_next: look('input'),
  to_device: look('transfer'),
  forward: look('forward'),
  backward: look('compute'),
  exchange_wait: look('straggler', true),
  exchange_transfer: look('communication'),
  exchange: look('exchange'),
  optimizer: look('compute', true),
  step_lr_schedulers: look('forward', true),
  from_device: look('transfer', true),
  average_training_metrics: look('communication', true),
  reduce_metrics: look('straggler'),
  checkpoint: look('checkpoint'),
  validation: look('checkpoint', true),
  callbacks: look('rest', true),
  rest: look('rest')
};

/** The look of a part. */
export function lookOfPart(name: string): Look {
  return LOOKS[name] ?? look('rest');
}

/** The parts with times, in stacking order. */
export function partsOf(page: ISeriesPage, source: string): ISeries[] {
  const own = new Map(page.series.filter(one => one.source === source).map(s => [s.name, s]));
  return PARTS.flatMap(name => {
    const one = own.get(name);
    return one?.mid.some(value => value > 0) ? [one] : [];
  });
}

export interface IRankTimes {
  rank: number;
  /** Seconds per batch of each part, in stacking order. */
  parts: { name: string; title: string; seconds: number }[];
  total: number;
}

/** The times of each rank per batch, from a page of one column. */
export function ranksOf(page: ISeriesPage): IRankTimes[] {
  const sources = [...new Set(page.series.map(one => one.source))].filter(isRank);
  return sources
    .map(source => {
      const parts = partsOf(page, source).map(({ name, title, mid }) => ({
        ...{ name, title },
        seconds: mean(mid)
      }));
      const total = parts.reduce((sum, part) => sum + part.seconds, 0);
      return { rank: rankOf(source), parts, total };
    })
    .sort((a, b) => a.rank - b.rank);
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

function isRank(source: string): boolean {
  return source.startsWith('rank:');
}

function rankOf(source: string): number {
  return Number(source.slice('rank:'.length));
}

export interface IPartRow {
  name: string;
  title: string;
  /** The share of the rank's time; `null` for sections within other parts. */
  share: number | null;
  mean: number | null;
  /** Of its single durations, in the order of STATISTICS. */
  statistics: (number | null)[];
}

/** The names of a part's statistics. */
export function statisticsOf(name: string): string[] {
  return STATISTICS.map(which => `${name}.${which}`);
}

function isStatistic(name: string): boolean {
  return STATISTICS.some(which => name.endsWith(`.${which}`));
}

/** A row for each part, and for each of the user's sections, from a page of one column. */
export function partRows(page: ISeriesPage, source: string): IPartRow[] {
  const own = new Map(page.series.filter(one => one.source === source).map(s => [s.name, s]));
  const parts = partsOf(page, source);
  const sections = [...own.values()].filter(
    one => one.name.startsWith(SECTION) && !isStatistic(one.name)
  );
  const total = parts.reduce((sum, one) => sum + mean(one.mid), 0);
  const value = (name: string): number | null => own.get(name)?.mid[0] ?? null;
  return [...parts, ...sections].map(({ name, title, mid }) => ({
    ...{ name, title },
    share: name.startsWith(SECTION) || total === 0 ? null : mean(mid) / total,
    mean: mean(mid),
    statistics: statisticsOf(name).map(value)
  }));
}
