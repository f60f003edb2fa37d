/** Makes pictures of system metrics of machines, GPUs and ranks: one for each measure; pure. */
import { lookOf, type ICurve, type IPicture, type IPictureMark } from '../charts/picture.js';
import { capitalized, formatMeasure } from '../model/units.js';
import { SYSTEM } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import { aligned } from '../series/columns.js';
import type { ISeries, ISeriesPage } from '../model/answers.js';

/** The number of curves with a colour and name each, and the number with bands. */
const MAX_NAMED = 8;
const MAX_BANDS = 2;

type Group = 'host' | 'gpu' | 'rank';

/** The group of a source: `gpu:UUID`, `mig:UUID`, `rank:0` and `workers:0`; others are machines. */
function groupOf(source: string): Group {
  const kind = source.split(':')[0] ?? '';
  const known: Record<string, Group> = { gpu: 'gpu', mig: 'gpu', rank: 'rank', workers: 'rank' };
  return known[kind] ?? 'host';
}

/** The pictures in the order of groups and measures, a curve for each source. */
export function systemPictures(
  page: ISeriesPage,
  origin: number,
  trans: ITrans,
  marks: IPictureMark[] = []
): IPicture[] {
  const sections: [Group, string][] = [
    ['host', trans.__('Machine')],
    ['gpu', trans.__('GPUs')],
    ['rank', trans.__('Processes of the ranks')]
  ];
  const labels = labelsOf(page.series, trans);
  return sections.flatMap(([group, section]) =>
    byName(page.series, group).map(series => ({
      ...pictureOf(series, origin, labels),
      section,
      marks
    }))
  );
}

function byName(all: readonly ISeries[], group: Group): ISeries[][] {
  const named = new Map<string, ISeries[]>();
  for (const one of all) {
    if (groupOf(one.source) === group && one.x.length > 0) {
      named.set(one.name, [...(named.get(one.name) ?? []), one]);
    }
  }
  return [...named.values()];
}

function pictureOf(
  series: ISeries[],
  origin: number,
  labels: ReadonlyMap<string, string>
): IPicture {
  const { title, unit } = series[0] as ISeries;
  const { x, mid, low, high } = aligned(series, origin);
  const curves = series.map((one, i): ICurve => ({
    ...{ label: labels.get(one.source) ?? one.source, values: mid[i] ?? [] },
    ...lookOf(i),
    isFaint: i >= MAX_NAMED,
    ...(series.length <= MAX_BANDS && { band: { low: low[i] ?? [], high: high[i] ?? [] } })
  }));
  return {
    ...{ title: capitalized(title), kind: 'lines', x, curves, empty: '' },
    text: value => formatMeasure(value, unit),
    bounds: [0, unit === '%' ? 100 : 0]
  };
}

/** Labels of sources; GPUs are numbered, as their UUIDs are long. */
function labelsOf(all: readonly ISeries[], trans: ITrans): Map<string, string> {
  const sources = [...new Set(all.map(one => one.source))];
  const gpus = sources.filter(source => groupOf(source) === 'gpu').sort();
  return new Map(
    sources.map(source => {
      const [kind, rest = ''] = source.split(/:(.*)/s);
      const words: Record<string, string> = {
        host: rest === '' ? trans.__('machine') : rest,
        gpu: trans.__('GPU %1', gpus.indexOf(source)),
        mig: trans.__('MIG slice %1', gpus.indexOf(source)),
        rank: trans.__('rank %1', rest),
        workers: trans.__('loaders of rank %1', rest)
      };
      return [source, words[kind ?? ''] ?? source];
    })
  );
}

export interface IMissing {
  /** The missing measures, or a measure's missing sources. */
  what: string[];
  reason: string;
}

/** Missing measures, grouped by reason. */
export function missingOf(page: ISeriesPage, trans: ITrans): IMissing[] {
  const labels = labelsOf(page.series, trans);
  const found = new Map<string, Map<string, ISeries[]>>();
  const order = SYSTEM.flat();
  const inOrder = [...page.series].sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  for (const one of inOrder) {
    if (one.missing !== '' && one.x.length === 0) {
      const names = found.get(one.missing) ?? new Map<string, ISeries[]>();
      names.set(one.title, [...(names.get(one.title) ?? []), one]);
      found.set(one.missing, names);
    }
  }
  const hasValues = new Set(page.series.filter(one => one.x.length > 0).map(one => one.title));
  const text = (title: string, missing: ISeries[]): string =>
    hasValues.has(title)
      ? `${title} (${missing.map(one => labels.get(one.source) ?? one.source).join(', ')})`
      : title;
  const missing = [...found].map(([reason, names]) => ({
    reason,
    what: [...names].map(([title, series]) => text(title, series))
  }));
  const hasRanks = page.series.some(one => one.source.startsWith('rank:'));
  return hasRanks || page.series.length === 0
    ? missing
    : [...missing, { what: [trans.__('Processes of the ranks')], reason: noRanks(trans) }];
}

function noRanks(trans: ITrans): string {
  return trans.__('no sample has come; profiling.enabled: false turns them off');
}
