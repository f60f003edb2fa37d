/** Notifications: an experiment has ended, failed or hangs, a search has a new best, a disk is full. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import { plain } from '../../dom/dom.js';
import type { IDiskLine } from '../../model/state.js';
import { Commands, IDetJupyter, type IClusterModel, type IExperiments } from '../tokens.js';
import {
  DiskWatcher,
  isFailure,
  isWanted,
  messageOf,
  messageOfMany,
  Watcher,
  type IExperimentEvent
} from './experimentevents.js';
import { askPermission, notifyDesktop, permission } from './desktop.js';

const GATHER_MS = 1000; // events within it are notified together
const MOST_AT_ONCE = 3; // more events become one notification
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

  private _onCluster({ news }: Pick<IClusterModel, 'news'>): void {
    const full = news === null ? [] : this._disks.take(news.disks);
    if (this._det.settings.get('notifyEnded') !== 'never') {
      full.forEach(disk => void this._sayFull(disk));
    }
  }

  private async _sayFull({ key, sentence }: IDiskLine): Promise<void> {
    const tag = `full:${key}:${Math.floor(Date.now() / SAME_DISK_MS)}`;
    if (!(await isFirstTab(tag))) {
      return;
    }
    const { trans } = this._det;
    const text = trans.__('A disk is full: %1', plain(sentence));
    const show: Offer = [trans.__('Show Experiments'), Commands.showSidebar, {}];
    Notification.emit(text, 'error', { autoClose: false, actions: this._actions([show]) });
    this._notifyDesktop(tag, text, true, show);
  }

  private _gather(event: IExperimentEvent): void {
    const { id } = event.row;
    // A pending new best is replaced by a newer event.
    this._gathered = this._gathered.filter(({ kind, row }) => kind !== 'best' || row.id !== id);
    this._gathered.push(event);
    this._schedule(GATHER_MS);
  }

  private _schedule(afterMs: number): void {
    this._timer ??= setTimeout(() => {
      this._timer = undefined;
      void this._say();
    }, afterMs);
  }

  /** Show the gathered events, except new bests that follow too soon on another. */
  private async _say(): Promise<void> {
    const now = Date.now();
    const isEarly = ({ kind, row }: IExperimentEvent): boolean =>
      kind === 'best' && now < (this._bestAgainAt.get(row.id) ?? 0);
    const due = this._gathered.filter(event => !isEarly(event));
    this._gathered = this._gathered.filter(isEarly);
    due
      .filter(({ kind }) => kind === 'best')
      .forEach(({ row }) => this._bestAgainAt.set(row.id, now + BEST_PAUSE_MS));
    if (this._gathered.length > 0) {
      this._schedule(BEST_PAUSE_MS);
    }
    const firsts = await Promise.all(due.map(({ key }) => isFirstTab(key)));
    this._emit(due.filter((_, i) => firsts[i]));
  }

  private _emit(events: readonly IExperimentEvent[]): void {
    const { trans } = this._det;
    if (events.length <= MOST_AT_ONCE) {
      events.forEach(event => this._emitOne(event));
      return;
    }
    const hasFailed = events.some(isFailure);
    const text = messageOfMany(events, trans);
    const show: Offer = [trans.__('Show Experiments'), Commands.showSidebar, {}];
    Notification.emit(text, hasFailed ? 'error' : 'info', {
      autoClose: hasFailed ? false : SHOWN_MS,
      actions: this._actions([show])
    });
    this._notifyDesktop(events.map(({ key }) => key).join(), text, hasFailed, show);
  }

  private _notifyDesktop(tag: string, text: string, isFailure: boolean, open: Offer): void {
    if (this._det.settings.get('notifyDesktop')) {
      const onClick = (): void => this._actions([open])[0]?.callback(new MouseEvent('click'));
      notifyDesktop({ tag, text, isFailure, onClick }, this._det.trans);
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

  private _emitOne(event: IExperimentEvent): void {
    const { trans } = this._det;
    const { kind, row } = event;
    const args = { experiment_id: row.id };
    const open: Offer = [trans.__('Open'), Commands.openExperiment, args];
    const logs: Offer = [trans.__('Open Logs'), Commands.openLogs, args];
    const isBad = isFailure(event);
    const type = isBad ? 'error' : kind === 'best' ? 'info' : 'success';
    const text = messageOf(event, trans);
    Notification.emit(text, type, {
      autoClose: isBad ? false : SHOWN_MS,
      actions: this._actions(isBad ? [logs, open] : [open])
    });
    this._notifyDesktop(event.key, text, isBad, open);
  }

  /** Buttons for the commands that exist. */
  private _actions(offers: Offer[]): Notification.IAction[] {
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
  private _gathered: IExperimentEvent[] = [];
  private _isOffered = false; // for the present value of the setting
  private _timer: ReturnType<typeof setTimeout> | undefined;
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
