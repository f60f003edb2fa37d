/** The view of one experiment: made once, updated with each new state, ended by `dispose`. */
import { Board, type MakeChart } from './charts/board.js';
import { ClusterSection } from './cluster/section.js';
import { Details } from './experiment/details.js';
import { h } from './dom/dom.js';
import { Header } from './experiment/header.js';
import { Lost } from './dom/lost.js';
import type { IAsking, OnCommand } from './dom/notice.js';
import type { AskLogs } from './logs/lines.js';
import { LogPanel } from './logs/panel.js';
import { Clock, isEnded } from './model/clock.js';
import type { IViewState } from './model/state.js';
import { Settings } from './model/settings.js';
import { SearchView } from './search/view.js';
import type { AskSeries } from './series/pages.js';
import { watchTheme } from './dom/theme.js';
import { english, type ITrans } from './model/trans.js';
import { Trials } from './experiment/trials.js';

export interface IViewOptions {
  onCommand: OnCommand;
  /** The reader has chosen a trial of a search, or none any more. */
  onChoose?: (trialId: number | null) => void;
  makeChart: MakeChart;
  /** Without it there is no panel with what the ranks printed. */
  askLogs?: AskLogs;
  /** Without it there are no timings and no measurements of the machine. */
  askSeries?: AskSeries;
  slowHint?: string;
  /** What the reader has set for the charts. */
  settings?: Settings;
  trans?: ITrans;
}

const TICK_MS = 1000;

export class ExperimentView {
  readonly node: HTMLElement;

  constructor(private readonly _options: IViewOptions) {
    const options = _options;
    const trans = options.trans ?? english;
    const { slowHint = trans.__('No answer yet.') } = options;
    const onCommand: OnCommand = command =>
      this._isLost
        ? Promise.reject(new Error(trans.__('There is no kernel to carry this out.')))
        : options.onCommand(command);
    const { askLogs: ask } = options;
    const logs = ask === undefined ? undefined : new LogPanel({ trans, ask, slowHint });
    this._logs = logs;
    this._asking = {
      trans,
      onCommand,
      slowHint,
      ...(logs && { showLogs: (trialId, rank) => logs.show(trialId, rank) })
    };
    this._lost = new Lost(trans);
    this._header = new Header(this._asking);
    this._settings = options.settings ?? new Settings();
    this._board = new Board(trans, options.makeChart, this._settings);
    this._header.aside.append(this._board.tools);
    this._trials = new Trials(this._asking);
    this._cluster = new ClusterSection(trans);
    this._details = new Details(trans);
    this.node = h(
      'article.det-view',
      {},
      this._lost.node,
      this._header.node,
      this._board.node,
      this._trials.node,
      logs?.node ?? null,
      this._cluster.node,
      this._details.node
    );
    this._visibility = new IntersectionObserver(entries => {
      this._setVisible(entries.at(-1)?.isIntersecting ?? false);
    });
    this._visibility.observe(this.node);
    this._unwatchTheme = watchTheme(() => {
      this._board.restyle();
      this._search?.restyle();
    });
    this._timer = setInterval(() => this._tick(), TICK_MS);
  }

  /** Show a newer state; while out of sight it is only kept. */
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

  /** Say that the kernel is gone, and stop the clock; what is shown can still be explored. */
  setLost(isLost: boolean): void {
    if (isLost !== this._isLost) {
      this._isLost = isLost;
      this._draw();
    }
  }

  /** Show a trial of a search in full. */
  choose(trialId: number | null): void {
    this._wanted = trialId;
    this._search?.focus.choose(trialId);
  }

  dispose(): void {
    clearInterval(this._timer);
    this._visibility.disconnect();
    this._unwatchTheme();
    this._board.dispose();
    this._logs?.dispose();
    this._search?.dispose();
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
    this._trials.update(state.search === null ? state : { trials: [], num_trials: 0 });
    this._drawSearch(state);
    this._board.update(state);
    this._logs?.update(state);
    this._cluster.update(state.cluster);
    this._details.update(state);
  }

  private _drawLost(state: IViewState): void {
    if (this._isLost) {
      this._lost.show(state.as_of, isEnded(state.status));
    } else {
      this._lost.hide();
    }
  }

  private _drawSearch(state: IViewState): void {
    if (state.search !== null && this._search === undefined) {
      this._search = this._makeSearch();
      this._header.node.after(this._search.node);
      const title = h('b', {}, this._asking.trans.__('Curves'));
      this._board.node.before(h('div.det-line.det-curves', {}, title, this._header.aside));
      this._search.focus.choose(this._wanted);
    }
    this._search?.update(state, this._clock.time(Date.now() / 1000));
  }

  private _makeSearch(): SearchView {
    const { makeChart, onChoose } = this._options;
    const search = new SearchView({
      asking: this._asking,
      makeChart,
      settings: this._settings,
      onChoose: trialId => {
        this._wanted = trialId;
        onChoose?.(trialId);
      },
      onFocus: () => this._board.choose(search.focus.chosen)
    });
    return search;
  }

  private _setVisible(isVisible: boolean): void {
    this._isVisible = isVisible;
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

  private readonly _settings: Settings;
  private readonly _asking: IAsking;
  private readonly _lost: Lost;
  private readonly _header: Header;
  private readonly _board: Board;
  private readonly _trials: Trials;
  private readonly _logs: LogPanel | undefined;
  private readonly _cluster: ClusterSection;
  private readonly _details: Details;
  private readonly _clock = new Clock();
  private readonly _visibility: IntersectionObserver;
  private readonly _unwatchTheme: () => void;
  private readonly _timer: ReturnType<typeof setInterval>;
  private _search: SearchView | undefined;
  private _wanted: number | null = null;
  private _state: IViewState | undefined;
  private _isVisible = true;
  private _isDirty = false;
  private _isLost = false;
}
