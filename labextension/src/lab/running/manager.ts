/** The section of the Running panel: trials that hold slots, followed while the panel is visible. */
import type { IRunningSessions } from '@jupyterlab/running';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import type { ITrialLine } from '../../model/state.js';
import type { IDetJupyter, LinkState } from '../tokens.js';
import { itemsOf, type IActions } from './items.js';

const LOOK_MS = 3000; // between checks whether the panel is visible
const DRAWN_MS = 500; // least time between two updates
const KEPT: readonly LinkState[] = ['up', 'cut', 'connecting']; // the states in which trials are shown

export interface IOptions {
  det: Pick<IDetJupyter, 'followTrials' | 'link' | 'linkChanged' | 'trans'>;
  actions: Required<IActions>;
  killAll: (trials: readonly ITrialLine[]) => void;
  /** Whether the panel is visible. */
  isSeen: () => boolean;
}

export class RunningTrials implements IRunningSessions.IManager, IDisposable {
  constructor(private readonly _options: IOptions) {
    const { det } = _options;
    this.name = det.trans.__('Trials');
    this.shutdownLabel = det.trans.__('Kill the trial');
    this.shutdownAllLabel = det.trans.__('Kill All');
    det.linkChanged.connect(this._onLinkChanged, this);
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly supportsMultipleViews = true;
  readonly runningChanged = new Signal<this, void>(this);

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Read when the button is pressed, so that the number is current. */
  get shutdownAllConfirmationText(): string {
    return this._options.det.trans._n(
      'Kill %1 trial that holds slots? It ends at once, and what it has not saved is lost.',
      'Kill all %1 trials that hold slots? They end at once, and what they have not saved is lost.',
      this._trials.length
    );
  }

  /** Called by the panel when it draws the items. */
  running(options?: { mode: 'tree' | 'list' }): IRunningSessions.IRunningItem[] {
    this._follow();
    const { actions, det } = this._options;
    const { openTrial, openRank, kill } = actions;
    const mayKill = det.link.mayWrite ? { kill } : {};
    return itemsOf(
      this._trials,
      options?.mode ?? 'tree',
      { openTrial, openRank, ...mayKill },
      det.trans
    );
  }

  refreshRunning(): void {
    this._leave();
    this._follow();
  }

  shutdownAll(): void {
    this._options.killAll(this._trials);
  }

  dispose(): void {
    this._isDisposed = true;
    this._leave();
    clearTimeout(this._drawing);
    Signal.clearData(this);
  }

  private _follow(): void {
    if (this._followed !== null || this._isDisposed) {
      return;
    }
    this._missed = 0;
    this._followed = this._options.det.followTrials(trials => this._onTrials(trials));
    this._looking = setInterval(() => this._look(), LOOK_MS);
  }

  /** There is no signal for a hidden panel: one that is invisible at two checks is hidden. */
  private _look(): void {
    this._missed = this._options.isSeen() ? 0 : this._missed + 1;
    if (this._missed > 1) {
      this._leave();
    }
  }

  private _leave(): void {
    clearInterval(this._looking);
    this._followed?.dispose();
    this._followed = null;
  }

  private _onTrials(trials: readonly ITrialLine[]): void {
    const shown = JSON.stringify(trials);
    this._trials = trials;
    if (shown !== this._shown) {
      this._shown = shown;
      this._draw();
    }
  }

  private _onLinkChanged(): void {
    const { state, mayWrite } = this._options.det.link;
    if (!KEPT.includes(state)) {
      this._onTrials([]);
    } else if (mayWrite !== this._mayWrite) {
      this._mayWrite = mayWrite;
      this._draw();
    }
  }

  private _draw(): void {
    this._drawing ??= setTimeout(() => {
      this._drawing = undefined;
      this.runningChanged.emit();
    }, DRAWN_MS);
  }

  private _trials: readonly ITrialLine[] = [];
  private _shown = '[]';
  private _mayWrite = false;
  private _missed = 0;
  private _followed: IDisposable | null = null;
  private _looking: ReturnType<typeof setInterval> | undefined;
  private _drawing: ReturnType<typeof setTimeout> | undefined;
  private _isDisposed = false;
}

/** Whether a Running panel, or its search dialog, is visible. */
export function isPanelSeen(): boolean {
  const panels = document.querySelectorAll(
    '.jp-RunningSessions, .jp-RunningSessions-section, .jp-SearchableSessions'
  );
  return (
    document.visibilityState === 'visible' &&
    [...panels].some(panel => panel.getClientRects().length > 0)
  );
}
