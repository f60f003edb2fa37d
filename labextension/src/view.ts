/** The view of one experiment: made once, updated with each new state, told when to end. */
import { Board, type MakeChart } from './board.js';
import { Details } from './details.js';
import { h } from './dom.js';
import { Header, type OnCommand } from './header.js';
import { Clock, isEnded, type IViewState } from './model.js';
import { watchTheme } from './theme.js';
import { english, type ITrans } from './trans.js';
import { Trials } from './trials.js';

export interface IViewOptions {
  onCommand: OnCommand;
  makeChart: MakeChart;
  slowHint?: string;
  trans?: ITrans;
}

const TICK_MS = 1000;

export class ExperimentView {
  readonly node: HTMLElement;

  constructor(options: IViewOptions) {
    const trans = options.trans ?? english;
    this._header = new Header({
      trans,
      onCommand: options.onCommand,
      slowHint: options.slowHint ?? trans.__('No answer yet.')
    });
    this._board = new Board(trans, options.makeChart);
    this._header.aside.append(this._board.tools);
    this._trials = new Trials(trans);
    this._details = new Details(trans);
    this.node = h(
      'article.det-view',
      {},
      this._header.node,
      this._board.node,
      this._trials.node,
      this._details.node
    );
    this._visibility = new IntersectionObserver(entries => {
      this._setVisible(entries.at(-1)?.isIntersecting ?? false);
    });
    this._visibility.observe(this.node);
    this._unwatchTheme = watchTheme(() => this._board.restyle());
    this._timer = setInterval(() => this._tick(), TICK_MS);
  }

  /** Show a newer state; while out of sight it is only kept. */
  update(state: IViewState): void {
    this._state = state;
    this._clock.accept(state.as_of, Date.now() / 1000);
    if (this._isVisible) {
      this._draw();
    } else {
      this._isDirty = true;
    }
  }

  dispose(): void {
    clearInterval(this._timer);
    this._visibility.disconnect();
    this._unwatchTheme();
    this._board.dispose();
    this.node.remove();
  }

  private _draw(): void {
    const state = this._state;
    if (state === undefined) {
      return;
    }
    this._isDirty = false;
    this.node.setAttribute('aria-label', state.name);
    this._header.update(state);
    this._header.tick(state, this._clock, Date.now() / 1000);
    this._trials.update(state);
    this._board.update(state);
    this._details.update(state);
  }

  private _setVisible(isVisible: boolean): void {
    this._isVisible = isVisible;
    if (isVisible && this._isDirty) {
      this._draw();
    }
  }

  private _tick(): void {
    if (this._isVisible && this._state !== undefined && !isEnded(this._state.status)) {
      this._header.tick(this._state, this._clock, Date.now() / 1000);
    }
  }

  private readonly _header: Header;
  private readonly _board: Board;
  private readonly _trials: Trials;
  private readonly _details: Details;
  private readonly _clock = new Clock();
  private readonly _visibility: IntersectionObserver;
  private readonly _unwatchTheme: () => void;
  private readonly _timer: ReturnType<typeof setInterval>;
  private _state: IViewState | undefined;
  private _isVisible = true;
  private _isDirty = false;
}
