/** The trial that tabs about one trial show; pure. */
import { rankRows } from './rows.js';
import type {
  ITrialRow,
  ISearchState,
  ITraceLine,
  IVerdictState,
  IViewState,
  Status
} from './state.js';
import type { ITrans } from './trans.js';

export interface IShownTrial {
  id: number;
  status: Status;
  statusWord: string;
  numRanks: number;
  verdict: IVerdictState | null;
  traces: ITraceLine[];
}

/** The chosen trial, else the first that trains, or the best. */
export function shownTrial(state: IViewState): IShownTrial | null {
  const { search, trials } = state;
  const running = trials.find(one => one.status === 'running');
  const trial = search?.chosen?.trial ?? running ?? trials[0];
  if (trial !== undefined) {
    const { id, status, status_word, ranks, verdict, traces } = trial;
    return { id, status, statusWord: status_word, numRanks: ranks.length, verdict, traces };
  }
  const row = search?.rows.find(one => one.status === 'running') ?? bestRow(search);
  return row === undefined
    ? null
    : {
        id: row.id,
        status: row.status,
        statusWord: row.status_word,
        numRanks: row.num_slots,
        verdict: null,
        traces: []
      };
}

/** The best trial of a search; the first one before any has a value. */
function bestRow(search: ISearchState | null): ITrialRow | undefined {
  return search === null ? undefined : rankRows(search)[0];
}

/** The title of the shown trial; in a search, with a hint where to choose another. */
export function shownTitle(state: IViewState, trans: ITrans): string {
  const shown = shownTrial(state);
  if (shown === null) {
    return '';
  }
  const { search } = state;
  if (search === null) {
    return trans.__('Trial %1', shown.id);
  }
  const best = bestRow(search);
  return best?.id === shown.id && best.best !== null
    ? trans.__('Trial %1, the best (choose another one in the table of Overview)', shown.id)
    : trans.__('Trial %1 (choose another one in the table of Overview)', shown.id);
}
