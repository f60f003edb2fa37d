/** The view of one experiment: updated with each state, ended by `dispose`. */
import type { MakeChart } from './charts/metricboard.js';
import { h } from './dom/dom.js';
import { kernelIsGone, Lost, type DescribeLost } from './dom/lost.js';
import type { IRankTool, IRequestContext, OnCommand } from './dom/notice.js';
import { watchTheme } from './dom/theme.js';
import { CallbackButton, type ReplaceCell } from './experiment/callback.js';
import { Header } from './experiment/header.js';
import { Overview } from './overview.js';
import { LogPanel } from './logs/logspanel.js';
import { Clock, isEnded } from './model/clock.js';
import type { Ask } from './model/questions.js';
import { Settings } from './model/viewsettings.js';
import type { IViewState } from './model/state.js';
import { english, type ITrans } from './model/trans.js';
import { LazyTabs, type LoadTabs } from './tabs/lazy.js';
import type { ITab } from './tabs/tab.js';
import { TabFrame } from './tabs/frame.js';

export interface IViewOptions {
  onCommand: OnCommand;
  /** Called when the user has chosen a trial of a search, or `null`. */
  onChoose?: (trialId: number | null) => void;
  makeChart: MakeChart;
  /** Sends questions; without it, the view shows only the state. */
  ask?: Ask;
  /** Changes a cell of the notebook that the view is in. */
  replaceCell?: ReplaceCell;
  /** Fetches the code of further tabs; without it they are absent. */
  loadTabs?: LoadTabs;
  slowHint?: string;
  /** What a click on a rank offers besides its log. */
  rankTools?: readonly IRankTool[];
  /** Describes why the view is not live; by default, that the kernel is gone. */
  describeLost?: DescribeLost;
  /** The user's settings. */
  settings?: Settings;
  trans?: ITrans;
}

const TICK_MS = 1000;

export class ExperimentView {
  readonly node: HTMLElement;

  constructor(options: IViewOptions) {
    const trans = options.trans ?? english;
    const { slowHint = trans.__('No answer yet.') } = options;
    this._whyLost = options.describeLost ?? kernelIsGone(trans, true);
    const onCommand: OnCommand = command =>
      this._isLost ? Promise.reject(this._lostError()) : options.onCommand(command);
    const settings = options.settings ?? new Settings();
    const { makeChart } = options;
    const ask: Ask | undefined =
      options.ask &&
      ((type, fields) =>
        this._isLost ? Promise.reject(this._lostError()) : (options.ask as Ask)(type, fields));
    const logs = ask && new LogPanel({ trans, ask: query => ask('logs', query), slowHint });
    this._logs = logs;
    const log: IRankTool = {
      label: trans.__('Log'),
      caption: trans.__('Show what the rank has printed'),
      isLive: false,
      run: (trialId, rank) => this.showLogs(trialId, rank)
    };
    this._requests = {
      trans,
      onCommand,
      slowHint,
      rankTools: [...(options.rankTools ?? []), ...(logs ? [log] : [])],
      ...(logs && { showLogs: (trialId, rank) => this.showLogs(trialId, rank) })
    };
    this._lost = new Lost();
    this._header = new Header(this._requests);
    this._overview = new Overview({
      requests: this._requests,
      makeChart,
      settings,
      clock: this._clock,
      aside: () => this._tabs.aside,
      callback: ask && new CallbackButton(trans, ask, options.replaceCell),
      onChoose: trialId => options.onChoose?.(trialId)
    });
    const others: ITab[] = logs ? [logs] : [];
    if (ask !== undefined && options.loadTabs !== undefined) {
      const context = { requests: this._requests, ask, settings, makeChart };
      const lazy = new LazyTabs(context, options.loadTabs);
      others.unshift(
        lazy.tab('metrics', trans.__('Metrics')),
        lazy.tab('timings', trans.__('Timings')),
        lazy.tab('system', trans.__('System'))
      );
      others.push(
        lazy.tab('config', trans.__('Config')),
        lazy.tab('checkpoints', trans.__('Checkpoints'))
      );
    }
    this._tabs = new TabFrame(trans, settings, [this._overview, ...others]);
    this.node = h('article.det-view', {}, this._lost.node, this._header.node, this._tabs.node);
    this._visibility = new IntersectionObserver(entries => {
      this._setVisible(entries.at(-1)?.isIntersecting ?? false);
    });
    this._visibility.observe(this.node);
    this._unwatchTheme = watchTheme(() => this._tabs.restyle());
    this._timer = setInterval(() => this._tick(), TICK_MS);
  }

  /** Accept a state; it is drawn while the view is visible. */
  update(state: IViewState): void {
    this._state = state;
    this._clock.accept(state.as_of, Date.now() / 1000);
    this._header.note(state);
    if (this._isVisible) {
      this._draw();
    } else {
      this._isDirty = true;
    }
  }

  /** Mark the view as not live; what it shows can still be explored. */
  setLost(isLost: boolean): void {
    if (isLost || this._isLost) {
      this._isLost = isLost;
      this._draw();
    }
  }

  /** Show the details of a trial of a search. */
  choose(trialId: number | null): void {
    this._overview.choose(trialId);
  }

  /** Open the logs of a trial's rank; `null`: of all. */
  showLogs(trialId: number | null, rank: number | null): void {
    if (this._logs !== undefined) {
      if (trialId !== null) {
        this._logs.narrow(trialId, rank);
      }
      this._tabs.open(this._logs.id);
      this._logs.focus();
    }
  }

  dispose(): void {
    clearInterval(this._timer);
    this._visibility.disconnect();
    this._unwatchTheme();
    this._tabs.dispose();
    this.node.remove();
  }

  private _draw(): void {
    const state = this._state;
    if (state === undefined) {
      return;
    }
    this._isDirty = false;
    this.node.setAttribute('aria-label', state.name);
    this._drawLost(state);
    this._header.update(this._isLost ? { ...state, actions: [] } : state);
    this._header.tick(state, this._clock, Date.now() / 1000);
    this._tabs.update(state);
  }

  private _drawLost(state: IViewState): void {
    if (this._isLost) {
      this._lost.show(this._whyLost(state.id, state.as_of, isEnded(state.status)));
    } else {
      this._lost.hide();
    }
  }

  /** The error of requests while the view is not live. */
  private _lostError(): Error {
    const { text, line } = this._whyLost(this._state?.id ?? 0, this._state?.as_of ?? 0, true);
    return new Error(text + line);
  }

  private _setVisible(isVisible: boolean): void {
    this._isVisible = isVisible;
    this._tabs.setVisible(isVisible);
    if (isVisible && this._isDirty) {
      this._draw();
    }
  }

  private _tick(): void {
    const isOver = this._isLost || this._state === undefined || isEnded(this._state.status);
    if (this._isVisible && this._state !== undefined && !isOver) {
      this._header.tick(this._state, this._clock, Date.now() / 1000);
    }
  }

  private readonly _requests: IRequestContext;
  private readonly _whyLost: DescribeLost;
  private readonly _logs: LogPanel | undefined;
  private readonly _lost: Lost;
  private readonly _header: Header;
  private readonly _overview: Overview;
  private readonly _tabs: TabFrame;
  private readonly _clock = new Clock();
  private readonly _visibility: IntersectionObserver;
  private readonly _unwatchTheme: () => void;
  private readonly _timer: ReturnType<typeof setInterval>;
  private _state: IViewState | undefined;
  private _isVisible = true;
  private _isDirty = false;
  private _isLost = false;
}
