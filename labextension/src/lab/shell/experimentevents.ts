/** Finds the events of experiments and disks that are worth a notification. Independent of JupyterLab. */
import { plain } from '../../dom/dom.js';
import { formatNumber } from '../../model/format.js';
import { ENDED, type IDiskLine, type IExperimentRow, type Status } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import type { ISettingValues } from '../tokens.js';

export interface IExperimentEvent {
  kind: 'ended' | 'failed' | 'diverged' | 'hangs' | 'best';
  row: IExperimentRow;
  /** Unique per event, and the same in all browser tabs. */
  key: string;
}

export interface IDiskEvent {
  kind: 'full';
  disk: IDiskLine;
  key: string;
}

export type News = IExperimentEvent | IDiskEvent;

interface ISeen {
  createdAt: number;
  status: Status;
  best: number | null;
  alarm: string; // the first divergence, as a loss may alternate between NaN and finite values
  hang: string; // the sentence about a trial that hangs now
  told: string; // the alarm of the last notification of a divergence
}

/**
 * Compares experiments with their former state.
 *
 * The state when the page opens makes no events. An experiment that appears later and has ended has
 * ended since. Canceled ones make no event, as the user did that, nor does the end of a diverged one
 * if it repeats the alarm.
 */
export class Watcher {
  /** The events since the last call. */
  take(
    rows: ReadonlyMap<number, IExperimentRow>,
    changed: readonly number[] | null
  ): IExperimentEvent[] {
    const events: IExperimentEvent[] = [];
    for (const id of changed ?? rows.keys()) {
      const row = rows.get(id);
      if (row === undefined) {
        this._seen.delete(id);
        continue;
      }
      const found = this._eventsOf(row);
      events.push(...found);
      this._note(row, found);
    }
    this._newest = Math.max(this._newest ?? 0, ...rows.keys());
    return events;
  }

  private _eventsOf(row: IExperimentRow): IExperimentEvent[] {
    if (row.is_quiet) {
      return []; // the program that submitted it waits for it and reports the end
    }
    const seen = this._seen.get(row.id);
    const isSame = seen?.createdAt === row.created_at;
    if (this._newest === null || (!isSame && row.id <= this._newest)) {
      return []; // the page has just opened, or the master is another one
    }
    const before = isSame ? seen : undefined;
    const hasEnded = ENDED.includes(row.status) && !ENDED.includes(before?.status ?? 'queued');
    if (hasEnded) {
      const kind = row.status === 'error' ? 'failed' : 'ended';
      const key = `${row.id}:${kind}:${row.ended_at ?? row.created_at}`;
      const told = before?.told ?? '';
      const isKnown = kind === 'failed' && told !== '' && row.failure.includes(told);
      return row.status === 'canceled' || isKnown ? [] : [{ kind, row, key }];
    }
    if (row.alarm_kind === 'hangs') {
      const isNew = row.alarm !== (before?.hang ?? '');
      return isNew ? [{ kind: 'hangs', row, key: `${row.id}:hangs:${row.alarm}` }] : [];
    }
    if (row.alarm_kind === 'diverged' && (before?.alarm ?? '') === '') {
      return [{ kind: 'diverged', row, key: `${row.id}:diverged:${row.alarm}` }];
    }
    return isBetter(row, before?.best ?? null)
      ? [{ kind: 'best', row, key: `${row.id}:best:${row.best_metric}` }]
      : [];
  }

  private _note(row: IExperimentRow, found: readonly IExperimentEvent[]): void {
    const { created_at: createdAt, status, best_metric: best } = row;
    const seen = this._seen.get(row.id);
    const before = seen?.createdAt === createdAt && !ENDED.includes(seen.status) ? seen : undefined;
    const first = before?.alarm ?? '';
    const alarm = first === '' && row.alarm_kind === 'diverged' ? row.alarm : first;
    const hang = row.alarm_kind === 'hangs' ? row.alarm : '';
    const told = found.some(({ kind }) => kind === 'diverged') ? row.alarm : (before?.told ?? '');
    this._seen.set(row.id, { createdAt, status, best, alarm, hang, told });
  }

  private readonly _seen = new Map<number, ISeen>();
  private _newest: number | null = null;
}

/** Finds the disks that have become full; those that are full when the page opens make no events. */
export class DiskWatcher {
  /** The disks that have become full since the last call. */
  take(disks: readonly IDiskLine[]): IDiskLine[] {
    const full = disks.filter(disk => disk.is_full);
    const before = this._full ?? new Set(full.map(({ key }) => key));
    this._full = new Set(full.map(({ key }) => key));
    return full.filter(({ key }) => !before.has(key));
  }

  private _full: ReadonlySet<string> | null = null;
}

/** Whether a search has a new best value; not the first one, nor that of a single trial. */
function isBetter(row: IExperimentRow, before: number | null): boolean {
  if (row.num_trials < 2 || row.best_metric === null || before === null) {
    return false;
  }
  return row.smaller_is_better ? row.best_metric < before : row.best_metric > before;
}

/** Whether it stays on the screen, in red. */
export function isFailure({ kind }: News): boolean {
  return kind !== 'ended' && kind !== 'best';
}

/** What ended sooner than this, the user has seen end. */
const SHORT_S = 5;

/** Whether the settings enable notifications of this event. */
export function isWanted(
  event: IExperimentEvent,
  settings: Pick<ISettingValues, 'notifyEnded' | 'notifyBest'>
): boolean {
  switch (event.kind) {
    case 'best':
      return settings.notifyBest;
    case 'failed':
    case 'diverged':
    case 'hangs':
      return settings.notifyEnded !== 'never';
    case 'ended':
      return settings.notifyEnded === 'always' && tookS(event.row) >= SHORT_S;
  }
}

function tookS({ created_at: createdAt, ended_at: endedAt }: IExperimentRow): number {
  return (endedAt ?? createdAt) - createdAt;
}

/** JupyterLab cuts messages at 140 characters. */
const LONGEST_NAME = 50;
const MOST_NUMBERS = 5;

export function messageOf(event: News, trans: ITrans): string {
  if (event.kind === 'full') {
    return trans.__('A disk is full: %1', plain(event.disk.sentence));
  }
  const { kind, row } = event;
  const name = shortened(row.name, LONGEST_NAME);
  if (kind === 'failed') {
    return trans.__('Experiment %1 failed (%2): %3', row.id, name, row.failure);
  }
  if (kind === 'hangs') {
    return trans.__('Experiment %1 (%2) hangs: %3', row.id, name, plain(row.alarm));
  }
  if (kind === 'diverged') {
    return trans.__('Experiment %1 (%2) diverged: %3', row.id, name, row.alarm);
  }
  const best = formatNumber(row.best_metric);
  if (kind === 'best') {
    return trans.__('Search %1 (%2) has a new best: %3 %4', row.id, name, row.metric, best);
  }
  return row.best_metric === null
    ? trans.__('Experiment %1 (%2) has ended', row.id, name)
    : trans.__('Experiment %1 (%2) has ended: %3 %4', row.id, name, row.metric, best);
}

/** One message for many events; what is wrong is named by its numbers, if they are few. */
export function messageOfMany(events: readonly News[], trans: ITrans): string {
  const ids = (kind: IExperimentEvent['kind']): number[] =>
    events.flatMap(event => (event.kind === kind ? [event.row.id] : []));
  const named = (text: string, numbers: readonly number[]): string =>
    numbers.length > MOST_NUMBERS ? text : `${text} (${numbers.join(', ')})`;
  const [ended, best] = [ids('ended').length, ids('best').length];
  const [failed, diverged, hanging] = [ids('failed'), ids('diverged'), ids('hangs')];
  const full = events.filter(({ kind }) => kind === 'full').length;
  const parts: [count: number, text: string][] = [
    [full, trans._n('%1 disk is full', '%1 disks are full', full)],
    [
      hanging.length,
      named(trans._n('%1 experiment hangs', '%1 experiments hang', hanging.length), hanging)
    ],
    [
      diverged.length,
      named(
        trans._n('%1 experiment diverged', '%1 experiments diverged', diverged.length),
        diverged
      )
    ],
    [
      failed.length,
      named(trans._n('%1 experiment failed', '%1 experiments failed', failed.length), failed)
    ],
    [ended, trans._n('%1 experiment has ended', '%1 experiments have ended', ended)],
    [best, trans._n('%1 search has a new best', '%1 searches have a new best', best)]
  ];
  return parts.flatMap(([count, text]) => (count > 0 ? [text] : [])).join(', ');
}

function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
