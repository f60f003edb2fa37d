/** The view of a search: pictures, table, and the details of the chosen trial. */
import { Board, type MakeChart } from '../charts/metricboard.js';
import { h, rebuilder, setHidden, setText, smallButton } from '../dom/dom.js';
import { Focus } from './focus.js';
import { icon } from '../dom/icons.js';
import type { Stage } from '../dom/stage.js';
import type { IRequestContext } from '../dom/notice.js';
import { isEnded } from '../model/clock.js';
import type { IRemark, ISearchState, IViewState, IImportance } from '../model/state.js';
import { ParallelPicture } from './parallelpicture.js';
import { ProgressPicture } from './progresspicture.js';
import { RungsPicture } from './rungspicture.js';
import type { Settings } from '../model/viewsettings.js';
import { ScatterPicture } from './scatterpicture.js';
import { TrialTable } from './table.js';
import { Trials } from '../experiment/trials.js';
import { WaitNote } from '../cluster/waits.js';
import { formatPercent } from '../model/format.js';
import type { ITrans } from '../model/trans.js';

export interface ISearchViewOptions {
  requests: IRequestContext;
  makeChart: MakeChart;
  settings: Settings;
  /** Called when the user has chosen a trial, or `null`. */
  onChoose: (trialId: number | null) => void;
  onFocus: () => void;
}

export class SearchView {
  readonly node: HTMLElement;
  readonly focus = new Focus();

  constructor(private readonly _options: ISearchViewOptions) {
    const { trans } = _options.requests;
    this._rungs = new RungsPicture(trans, this.focus);
    this._progress = new ProgressPicture(trans, this.focus);
    this._parallel = new ParallelPicture(trans, this.focus);
    this._scatter = new ScatterPicture(trans, this.focus, _options.settings);
    this._importance = new ImportanceBars(trans);
    this._table = new TrialTable(trans, this.focus);
    this._waiting = new WaitNote(_options.requests);
    this._trial = new Trials(_options.requests);
    this._board = new Board(trans, _options.makeChart, _options.settings);
    const close = smallButton(trans.__('Close'), () => this.focus.choose(null));
    this._chosen = h(
      'section.det-chosen',
      { hidden: true, 'aria-label': trans.__('The chosen trial') },
      h(
        'div.det-line',
        {},
        this._title,
        h('div.det-aside.det-tools', {}, this._board.tools, close)
      ),
      this._pending,
      this._trial.node,
      this._board.node
    );
    this.node = h(
      'div.det-search',
      {},
      this._waiting.node,
      this._remarks,
      h('div.det-pictures', {}, this._rungs.stage.node, this._progress.stage.node),
      this._parallel.stage.node,
      h('div.det-pictures', {}, this._scatter.stage.node, this._importance.node),
      this._table.node,
      this._chosen
    );
    this.focus.onChange(() => this._onFocus());
  }

  update(state: IViewState, now: number): void {
    const { search } = state;
    if (search === null) {
      return;
    }
    this._state = state;
    this._waiting.update(search.wait);
    this._drawRemarks({ remarks: search.remarks, more: search.num_more_remarks });
    setHidden(this._rungs.stage.node, search.brackets.length === 0);
    const hasNothing = search.axes.length === 0 || search.rows.length === 0;
    setHidden(this._parallel.stage.node, hasNothing);
    setHidden(this._scatter.stage.node, hasNothing);
    this._rungs.update(search);
    this._progress.update(search, (state.ended_at ?? now) - state.created_at);
    this._parallel.update(search);
    this._scatter.update(search);
    this._importance.update(hasNothing ? null : search.importance);
    this._table.update(search);
    this._drawChosen(search);
  }

  restyle(): void {
    this._stages.forEach(stage => stage.restyle());
    this._board.restyle();
  }

  dispose(): void {
    this._stages.forEach(stage => stage.dispose());
    this._board.dispose();
  }

  private _onFocus(): void {
    this._stages.forEach(stage => stage.redraw());
    this._table.refocus();
    if (this._told !== this.focus.chosen) {
      this._told = this.focus.chosen;
      this._options.onChoose(this._told);
      if (this._state?.search) {
        this._drawChosen(this._state.search);
      }
    }
    this._options.onFocus();
  }

  private _drawChosen(search: ISearchState): void {
    const { trans } = this._options.requests;
    const { chosen: id } = this.focus;
    const row = search.rows.find(one => one.id === id);
    setHidden(this._chosen, row === undefined);
    if (row === undefined || this._state === undefined) {
      return;
    }
    const chosen = search.chosen?.trial.id === id ? search.chosen : null;
    setText(this._title, chosen === null ? trans.__('Trial %1', row.id) : '');
    setText(
      this._pending,
      isEnded(this._state.status)
        ? trans.__('Its curves and ranks come from the notebook kernel, which has not answered.')
        : trans.__('Its curves and ranks appear when the notebook kernel has answered.')
    );
    setHidden(this._pending, chosen !== null);
    setHidden(this._trial.node, chosen === null);
    setHidden(this._board.node, chosen === null);
    this._trial.update({
      trials: chosen === null ? [] : [chosen.trial],
      num_trials: 1
    });
    this._board.update({
      charts: chosen?.charts ?? [],
      more_metrics: chosen?.more_metrics ?? [],
      no_metrics: chosen?.no_metrics ?? '',
      steps_per_epoch: this._state.steps_per_epoch
    });
  }

  private _remark(remark: IRemark): HTMLElement {
    const { trans } = this._options.requests;
    const shows = remark.trial_ids.map(id => {
      const name = trans.__('Show trial %1', id);
      const button = h('button.det-link', { type: 'button', title: name }, String(id));
      button.addEventListener('click', () => this.focus.choose(id));
      return button;
    });
    const kind = remark.is_failure ? 'error' : 'queued';
    return h(
      'li.det-remark',
      { 'data-kind': remark.is_failure ? 'failure' : 'worst' },
      icon(kind),
      h('span', {}, remark.text),
      h('span.det-quiet', {}, trans.__('show'), ...shows.flatMap(one => [' ', one]))
    );
  }

  private readonly _rungs: RungsPicture;
  private readonly _progress: ProgressPicture;
  private readonly _parallel: ParallelPicture;
  private readonly _scatter: ScatterPicture;
  private readonly _importance: ImportanceBars;
  private readonly _table: TrialTable;
  private readonly _trial: Trials;
  private readonly _board: Board;
  private readonly _chosen: HTMLElement;
  private readonly _title = h('b');
  private readonly _pending = h('p.det-empty');
  private readonly _waiting: WaitNote;
  private readonly _remarks = h('ul.det-remarks');
  private readonly _drawRemarks = rebuilder(
    this._remarks,
    ({ remarks, more }: { remarks: IRemark[]; more: number }) => [
      ...remarks.map(remark => this._remark(remark)),
      more > 0
        ? h(
            'li.det-quiet',
            {},
            this._options.requests.trans._n('%1 more remark', '%1 more remarks', more)
          )
        : null
    ]
  );
  private get _stages(): Stage[] {
    return [this._rungs.stage, this._progress.stage, this._parallel.stage, this._scatter.stage];
  }
  private _state: IViewState | undefined;
  private _told: number | null = null;
}

export class ImportanceBars {
  readonly node: HTMLElement;

  constructor(trans: ITrans) {
    this.node = h(
      'section.det-importance',
      { hidden: true, 'aria-label': trans.__('Importance of hyperparameters') },
      h('b', {}, trans.__('Importance')),
      this._bars,
      this._sentence
    );
  }

  update(importance: IImportance | null): void {
    setHidden(this.node, importance === null);
    if (importance !== null) {
      this._draw(importance);
    }
  }

  private readonly _bars = h('ul.det-shares');
  private readonly _sentence = h('p.det-quiet');
  private readonly _draw = (importance: IImportance): void => {
    this._rebuildBars(importance);
    this._rebuildSentence(importance);
  };
  private readonly _rebuildSentence = rebuilder(this._sentence, ({ sentence }: IImportance) => [
    sentence
  ]);
  private readonly _rebuildBars = rebuilder(this._bars, ({ shares }: IImportance) =>
    shares.map(({ name, share }) => {
      const bar = h('i', { 'aria-hidden': 'true' });
      bar.style.width = `${share * 100}%`;
      return h(
        'li',
        {},
        h('span', {}, name),
        h('span.det-share', {}, bar),
        h('span.det-number', {}, formatPercent(share))
      );
    })
  );
}
