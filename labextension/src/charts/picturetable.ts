/** Formats a picture as a table of values at some positions of the x axis. */
import { spaced, valueBefore } from './curves.js';
import type { IPicture } from './picture.js';
import { dataTable } from '../dom/dom.js';
import type { Range } from './uplotparts.js';

const MAX_ROWS = 15;

export interface ITableWords {
  /** The heading of the x axis, and the format of a position. */
  axis: string;
  place: (x: number) => string;
}

/** The rows include the first and the last position of the range. */
export function pictureTable(picture: IPicture, range: Range, words: ITableWords): HTMLElement {
  const curves = picture.curves.filter(one => !one.isFaint);
  return dataTable({
    caption: picture.title,
    head: [words.axis, ...curves.map(one => one.label)],
    rows: rowPlaces(picture, range).map(place => [
      words.place(picture.x[place] as number),
      ...curves.map(({ values }) => {
        const value = valueBefore(values, place);
        return value === null ? '–' : picture.text(value);
      })
    ]),
    isNumber: () => true
  });
}

/** Positions for rows: those of the points of a sparse curve, if there is one. */
export function rowPlaces({ x, curves }: IPicture, [min, max]: Range): number[] {
  const sparse = curves.filter(one => one.hasDots);
  const read = sparse.length > 0 ? sparse : curves;
  const places = x.flatMap((at, i) =>
    at >= min && at <= max && read.some(({ values }) => values[i] !== undefined) ? [i] : []
  );
  return spaced(places, MAX_ROWS);
}
