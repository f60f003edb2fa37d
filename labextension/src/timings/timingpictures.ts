/** Makes the pictures of timings: stacked parts, throughput, and the user's measures; pure. */
import { lookOf, type IPicture, type IPictureMark } from '../charts/picture.js';
import { capitalized, formatMeasure, formatSeconds } from '../model/units.js';
import type { ITrans } from '../model/trans.js';
import { aligned } from '../series/columns.js';
import { lookOfPart, partsOf } from './batchparts.js';
import { COUNTER, RATE, SECTION } from '../model/state.js';
import type { ISeries, ISeriesPage } from '../model/answers.js';

const MAX_COUNTERS = 6;
const MIN_SHARE = 0.001;

/** The pictures of one rank. */
export function timingPictures(
  page: ISeriesPage,
  source: string,
  origin: number,
  trans: ITrans,
  marks: IPictureMark[] = []
): IPicture[] {
  const own = page.series.filter(one => one.source === source && one.x.length > 0);
  const parts = visible(partsOf(page, source));
  const sections = own.filter(one => one.name.startsWith(SECTION));
  const counters = own.filter(one => one.name.startsWith(COUNTER)).slice(0, MAX_COUNTERS);
  // A loop of the user's reports no numbers of records.
  const pace = own.filter(one => one.name === RATE && one.mid.some(value => value > 0));
  const pictures: (IPicture | null)[] = [
    parts.length === 0
      ? null
      : { ...stack(parts, origin), title: trans.__('Time of a batch'), marks },
    lines(pace, trans.__('Records per second'), origin, marks),
    lines(sections, trans.__('Own sections, per batch'), origin),
    ...counters.map(one => lines([one], trans.__('%1 per batch', one.title), origin))
  ];
  return pictures.flatMap(one => (one === null ? [] : [one]));
}

/** Parts large enough to be visible in a stack; the table has all. */
function visible(parts: ISeries[]): ISeries[] {
  const sums = parts.map(one => one.mid.reduce((sum, value) => sum + value, 0));
  const least = MIN_SHARE * sums.reduce((all, one) => all + one, 0);
  return parts.filter((_, i) => (sums[i] as number) >= least);
}

function stack(parts: ISeries[], origin: number): Omit<IPicture, 'title'> {
  const { x, mid } = aligned(parts, origin);
  return {
    kind: 'stack',
    isWide: true,
    x,
    curves: parts.map(({ title, name }, i) => ({
      ...{ label: capitalized(title), values: mid[i] ?? [] },
      ...lookOfPart(name)
    })),
    text: formatSeconds,
    empty: ''
  };
}

function lines(
  series: ISeries[],
  title: string,
  origin: number,
  marks: IPictureMark[] = []
): IPicture | null {
  const [first] = series;
  if (first === undefined) {
    return null;
  }
  const { x, mid, low, high } = aligned(series, origin);
  return {
    ...{ title, kind: 'lines', x, marks, empty: '' },
    curves: series.map((one, i) => ({
      ...{ label: one.title, values: mid[i] ?? [] },
      ...lookOf(i),
      ...(series.length === 1 && { band: { low: low[i] ?? [], high: high[i] ?? [] } })
    })),
    text: value => formatMeasure(value, first.unit),
    bounds: [0, 0]
  };
}
