/** Headings and cells of the table of trials; pure. */
import { formatNumber } from '../model/format.js';
import type { ITrialRow, ISearchState } from '../model/state.js';
import { axisText } from '../model/scales.js';
import { rungText, type SortKey } from '../model/rows.js';
import type { ITrans } from '../model/trans.js';

export interface IHeading {
  key: SortKey;
  text: string;
  title: string;
  isNumber: boolean;
}

export interface ITableRow {
  id: number;
  status: ITrialRow['status'];
  /** One cell per heading, in their order; the second cell is the trial's state. */
  cells: { text: string; isNumber: boolean }[];
}

export function tableHeadings(search: ISearchState, trans: ITrans): IHeading[] {
  const make = (key: SortKey, text: string, isNumber = true, title = ''): IHeading => ({
    key,
    text,
    isNumber,
    title
  });
  return [
    make('trial', trans.__('Trial')),
    make('state', trans.__('State'), false),
    ...(search.brackets.length > 0 ? [make('rung', trans.__('Rung'), false)] : []),
    make('best', trans.__('Best %1', search.metric)),
    make('latest', trans.__('Latest')),
    make('steps', trans.__('Steps')),
    ...search.axes.map((axis, i) => make(i, axis.name, axis.scale !== 'category', axis.name)),
    make('slots', trans.__('Slots'), true, trans.__('How many it holds now'))
  ];
}

export function tableRow(row: ITrialRow, search: ISearchState, trans: ITrans): ITableRow {
  const number = (value: number | null): string => (value === null ? '–' : formatNumber(value));
  const isWorst = row.rungs.includes(null) && row.status !== 'error';
  const best = row.best === null && isWorst ? trans.__('none: worst') : number(row.best);
  return {
    id: row.id,
    status: row.status,
    cells: [
      { text: String(row.id), isNumber: true },
      { text: row.status_word, isNumber: false },
      ...(search.brackets.length > 0 ? [{ text: rungText(row, search), isNumber: false }] : []),
      { text: best, isNumber: true },
      { text: number(row.latest), isNumber: true },
      { text: String(row.steps_completed), isNumber: true },
      ...search.axes.map((axis, i) => ({
        text: axisText(axis, row.values[i] ?? null),
        isNumber: axis.scale !== 'category'
      })),
      { text: row.num_slots === 0 ? '' : String(row.num_slots), isNumber: true }
    ]
  };
}
