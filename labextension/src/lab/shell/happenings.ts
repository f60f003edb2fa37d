/** What happened to experiments that is worth a notification. Knows no JupyterLab. */
import { formatNumber } from '../../model/format.js';
import { ENDED, type IExperimentLine, type Status } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import type { ISettingValues } from '../tokens.js';

export interface IHappening {
  kind: 'ended' | 'failed' | 'best';
  row: IExperimentLine;
  /** The same in all tabs, another one for each happening. */
  key: string;
}

interface ISeen {
  createdAt: number;
  status: Status;
  best: number | null;
}

/**
 * Compares experiments with what they were.
 *
 * What is there when the page opens is only noted. An experiment that comes later and is over
 * already has ended since; one that was canceled is not mentioned, as somebody asked for that.
 */
export class Watcher {
  /** What happened since the last call. */
  take(
    rows: ReadonlyMap<number, IExperimentLine>,
    changed: readonly number[] | null
  ): IHappening[] {
    const happenings: IHappening[] = [];
    for (const id of changed ?? rows.keys()) {
      const row = rows.get(id);
      if (row === undefined) {
        this._seen.delete(id);
        continue;
      }
      happenings.push(...this._happeningsOf(row));
      this._seen.set(id, { createdAt: row.created_at, status: row.status, best: row.best });
    }
    this._newest = Math.max(this._newest ?? 0, ...rows.keys());
    return happenings;
  }

  private _happeningsOf(row: IExperimentLine): IHappening[] {
    const seen = this._seen.get(row.id);
    const isSame = seen?.createdAt === row.created_at;
    if (this._newest === null || (!isSame && row.id <= this._newest)) {
      return []; // the page has just opened, or another master is there
    }
    const before = isSame ? seen : undefined;
    const hasEnded = ENDED.includes(row.status) && !ENDED.includes(before?.status ?? 'queued');
    if (hasEnded) {
      const kind = row.status === 'failed' ? 'failed' : 'ended';
      const key = `${row.id}:${kind}:${row.ended_at ?? row.created_at}`;
      return row.status === 'canceled' ? [] : [{ kind, row, key }];
    }
    return isBetter(row, before?.best ?? null)
      ? [{ kind: 'best', row, key: `${row.id}:best:${row.best}` }]
      : [];
  }

  private readonly _seen = new Map<number, ISeen>();
  private _newest: number | null = null;
}

/** Whether a search has a new best; the first one is no news, nor is that of a single trial. */
function isBetter(row: IExperimentLine, before: number | null): boolean {
  if (row.num_trials < 2 || row.best === null || before === null) {
    return false;
  }
  return row.smaller_is_better ? row.best < before : row.best > before;
}

/** Whether the user wants to be notified of it. */
export function isWanted(
  happening: IHappening,
  settings: Pick<ISettingValues, 'notifyEnded' | 'notifyBest'>
): boolean {
  switch (happening.kind) {
    case 'best':
      return settings.notifyBest;
    case 'failed':
      return settings.notifyEnded !== 'never';
    case 'ended':
      return settings.notifyEnded === 'always';
  }
}

/** JupyterLab cuts messages at 140 characters. */
const LONGEST_NAME = 50;

export function messageOf({ kind, row }: IHappening, trans: ITrans): string {
  const name = shortened(row.name, LONGEST_NAME);
  if (kind === 'failed') {
    return trans.__('Experiment %1 failed (%2): %3', row.id, name, row.failure);
  }
  const best = formatNumber(row.best);
  if (kind === 'best') {
    return trans.__('Search %1 (%2) has a new best: %3 %4', row.id, name, row.metric, best);
  }
  return row.best === null
    ? trans.__('Experiment %1 (%2) has ended', row.id, name)
    : trans.__('Experiment %1 (%2) has ended: %3 %4', row.id, name, row.metric, best);
}

/** One message for many. */
export function messageOfMany(happenings: readonly IHappening[], trans: ITrans): string {
  const count = (kind: IHappening['kind']): number =>
    happenings.filter(one => one.kind === kind).length;
  const [ended, failed, best] = [count('ended'), count('failed'), count('best')];
  const parts = [
    failed > 0 ? trans._n('%1 experiment failed', '%1 experiments failed', failed) : '',
    ended > 0 ? trans._n('%1 experiment has ended', '%1 experiments have ended', ended) : '',
    best > 0 ? trans._n('%1 search has a new best', '%1 searches have a new best', best) : ''
  ];
  return parts.filter(part => part !== '').join(', ');
}

function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
