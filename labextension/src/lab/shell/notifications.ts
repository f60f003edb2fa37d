/**
 * Notifications: an experiment has ended, failed or hangs, a search has a new best, a disk is full.
 *
 * Two at most, each replaced in place: one of troubles, which stays until it is closed and gathers what
 * comes meanwhile, and one of other news, which is shown for a while.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import { Commands, IDetJupyter, type IClusterModel, type IExperiments } from '../tokens.js';
import {
  DiskWatcher,
  isFailure,
  isWanted,
  messageOf,
  messageOfMany,
  Watcher,
  type News
} from './experimentevents.js';
import { askPermission, notifyDesktop, permission } from './desktop.js';
import { Toast } from '../toast.js';

const GATHER_MS = 1000; // events within it are notified together
const BEST_PAUSE_MS = 30_000; // between two notifications of new bests of one search
const SHOWN_MS = 15_000;
const SAME_DISK_MS = 600_000; // within it, all tabs notify of a disk together once

export const notificationsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:notifications',
  description:
    'Notifies when an experiment ends, fails or hangs, a search has a new best, or a disk is full.',
  autoStart: true,
  requires: [IDetJupyter],
  activate: (app: JupyterFrontEnd, det: IDetJupyter) => {
    new Notifier(app.commands, det);
  }
};

/** Follows the experiments as long as the page is open. */
export class Notifier {
  constructor(
    private readonly _commands: Pick<CommandRegistry, 'execute' | 'hasCommand'>,
    private readonly _det: Pick<IDetJupyter, 'cluster' | 'experiments' | 'settings' | 'trans'>
  ) {
    const { experiments } = _det;
    experiments.changed.connect(this._onChanged, this);
    _det.settings.changed.connect(this._offerDesktop, this);
    _det.cluster.changed.connect(this._onCluster, this);
    this._onCluster(_det.cluster);
    this._offerDesktop();
    this._onChanged(experiments, null);
  }

  private _onChanged(experiments: IExperiments, changed: readonly number[] | null): void {
    if (!experiments.isReady) {
      return;
    }
    const { settings } = this._det;
    const wanted = {
      notifyEnded: settings.get('notifyEnded'),
      notifyBest: settings.get('notifyBest')
    };
    const events = this._watcher
      .take(experiments.rows, changed)
      .filter(event => isWanted(event, wanted));
    events.forEach(event => this._gather(event));
  }

  private _onCluster({ state }: Pick<IClusterModel, 'state'>): void {
    const full = state === null ? [] : this._disks.take(state.disks);
    if (this._det.settings.get('notifyEnded') !== 'never') {
      const period = Math.floor(Date.now() / SAME_DISK_MS);
      full.forEach(disk => {
        this._gather({ kind: 'full', disk, key: `full:${disk.key}:${period}` });
      });
    }
  }

  private _gather(event: News): void {
    // A pending new best is replaced by a newer event.
    const isOlder = (one: News): boolean => one.kind === 'best' && isOfSame(one, event);
    this._gathered = [...this._gathered.filter(one => !isOlder(one)), event];
    this._schedule(Date.now() + GATHER_MS);
  }

  /** Say what is gathered at this time, or earlier if that is scheduled. */
  private _schedule(at: number): void {
    if (at >= this._sayAt) {
      return;
    }
    clearTimeout(this._timer);
    this._sayAt = at;
    this._timer = setTimeout(() => {
      this._sayAt = Infinity;
      void this._say();
    }, at - Date.now());
  }

  /** Show the gathered events, except new bests that follow too soon on another. */
  private async _say(): Promise<void> {
    const now = Date.now();
    const dueAt = (event: News): number =>
      event.kind === 'best' ? (this._bestAgainAt.get(event.row.id) ?? 0) : 0;
    const isEarly = (event: News): boolean => now < dueAt(event);
    const due = this._gathered.filter(event => !isEarly(event));
    this._gathered = this._gathered.filter(isEarly);
    for (const event of due) {
      if (event.kind === 'best') {
        this._bestAgainAt.set(event.row.id, now + BEST_PAUSE_MS);
      }
    }
    if (this._gathered.length > 0) {
      this._schedule(Math.min(...this._gathered.map(dueAt)));
    }
    const firsts = await Promise.all(due.map(({ key }) => isFirstTab(key)));
    const news = due.filter((_, i) => firsts[i]);
    this._show(news.filter(isFailure));
    this._show(news.filter(event => !isFailure(event)));
  }

  /** Show news of one kind, with those before that are still to be seen. */
  private _show(news: readonly News[]): void {
    const [newest] = news.slice(-1);
    if (newest === undefined) {
      return;
    }
    const isBad = isFailure(newest);
    const notice = isBad ? this._troubles : this._others;
    const isKept = notice.toast.isUnseen && (isBad || Date.now() < notice.until);
    const before = isKept ? notice.events : [];
    notice.events = [...before.filter(one => !news.some(two => isOfSame(one, two))), ...news];
    notice.until = Date.now() + SHOWN_MS;
    const [text, offers] = this._words(notice.events);
    const type = isBad ? 'error' : notice.events.some(e => e.kind === 'best') ? 'info' : 'success';
    notice.toast.show(text, type, {
      autoClose: isBad ? false : SHOWN_MS,
      actions: this._actions(offers)
    });
    this._notifyDesktop(text, isBad, offers);
  }

  /** The text for some events, and what can be opened; the last is what a click on it opens. */
  private _words(events: readonly News[]): [text: string, offers: Offer[]] {
    const { trans } = this._det;
    const [event, ...others] = events as [News, ...News[]];
    if (others.length > 0 || event.kind === 'full') {
      const text = others.length > 0 ? messageOfMany(events, trans) : messageOf(event, trans);
      return [text, [[trans.__('Show Experiments'), Commands.showSidebar, {}]]];
    }
    const args = { experiment_id: event.row.id };
    const open: Offer = [trans.__('Open'), Commands.openExperiment, args];
    const logs: Offer = [trans.__('Open Logs'), Commands.openLogs, args];
    return [messageOf(event, trans), isFailure(event) ? [logs, open] : [open]];
  }

  private _notifyDesktop(text: string, isFailure: boolean, offers: readonly Offer[]): void {
    if (this._det.settings.get('notifyDesktop')) {
      const onClick = (): void => this._actions(offers).at(-1)?.callback(new MouseEvent('click'));
      notifyDesktop({ text, isFailure, onClick }, this._det.trans);
    }
  }

  /** With the setting on, offer a button that makes the browser ask: it requires a click. */
  private _offerDesktop(): void {
    const { settings, trans } = this._det;
    const isOn = settings.get('notifyDesktop');
    const isNew = isOn && !this._isOffered;
    this._isOffered = isOn;
    const found = permission();
    if (!isNew || found === 'granted') {
      return;
    }
    if (found !== 'default') {
      Notification.emit(
        found === 'denied'
          ? trans.__('The browser does not allow this page to notify you.')
          : trans.__('This browser has no notifications here; it needs https, or localhost.'),
        'warning'
      );
      return;
    }
    const actions = [{ label: trans.__('Allow'), callback: () => void askPermission() }];
    const text = trans.__('Experiments may notify you on the desktop, if the browser allows it.');
    Notification.emit(text, 'info', { autoClose: false, actions });
  }

  /** Buttons for the commands that exist. */
  private _actions(offers: readonly Offer[]): Notification.IAction[] {
    return offers
      .filter(([, command]) => this._commands.hasCommand(command))
      .map(([label, command, args]) => ({
        label,
        callback: () => void this._commands.execute(command, args)
      }));
  }

  private readonly _watcher = new Watcher();
  private readonly _disks = new DiskWatcher();
  private readonly _bestAgainAt = new Map<number, number>();
  private readonly _troubles = new Notice();
  private readonly _others = new Notice();
  private _gathered: News[] = [];
  private _isOffered = false; // for the present value of the setting
  private _sayAt = Infinity; // when the timer ends, in ms
  private _timer: ReturnType<typeof setTimeout> | undefined;
}

/** A notification, and the events that it is about. */
class Notice {
  readonly toast = new Toast();
  events: readonly News[] = [];
  until = 0; // when it is no longer shown, in ms
}

/** Whether two events are of the same experiment: the newer one says what counts. */
function isOfSame(one: News, two: News): boolean {
  return one.kind !== 'full' && two.kind !== 'full' && one.row.id === two.row.id;
}

type Offer = [label: string, command: string, args: { experiment_id?: number }];

// The focused tab calls first, then visible ones.
const UNFOCUSED_WAITS_MS = 400;
const HIDDEN_WAITS_MS = 1500;

/**
 * Whether this browser tab is the first that calls this with `key`; others get `false` while it is open.
 *
 * It is a lock that the tab holds. Browsers have locks only for pages loaded over HTTPS or from
 * localhost; elsewhere each tab is the first.
 */
export async function isFirstTab(key: string): Promise<boolean> {
  if (!document.hasFocus()) {
    const isHidden = document.visibilityState === 'hidden';
    const waitMs = isHidden ? HIDDEN_WAITS_MS : UNFOCUSED_WAITS_MS;
    await new Promise(resolve => setTimeout(resolve, waitMs));
  }
  const { locks } = navigator as { locks?: LockManager | null };
  if (!locks) {
    return true;
  }
  return new Promise(resolve => {
    const take = (lock: Lock | null): Promise<void> | void => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => undefined);
    };
    locks.request(`det-jupyter:${key}`, { ifAvailable: true }, take).catch(() => resolve(true));
  });
}
