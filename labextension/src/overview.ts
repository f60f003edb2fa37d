/** The first tab: curves, trials, the search, slots and queue, and details. */
import { Board, type MakeChart } from './charts/metricboard.js';
import { ClusterSection } from './cluster/clustersection.js';
import { h } from './dom/dom.js';
import type { IRequestContext } from './dom/notice.js';
import type { Clock } from './model/clock.js';
import type { Settings } from './model/viewsettings.js';
import type { IViewState } from './model/state.js';
import { SearchView } from './search/searchview.js';
import type { IPanel, ITab } from './tabs/tab.js';
import { shownTrial } from './model/showntrial.js';
import { VerdictBanner } from './timings/verdict.js';
import type { CallbackButton } from './experiment/callback.js';
import { Details } from './experiment/details.js';
import { Trials } from './experiment/trials.js';

export interface IOverviewOptions {
  requests: IRequestContext;
  makeChart: MakeChart;
  settings: Settings;
  clock: Clock;
  /** The element for the charts' buttons without a search. */
  aside: () => HTMLElement;
  /** Called when the user has chosen a trial of a search, or `null`. */
  onChoose: (trialId: number | null) => void;
  /** Adds DetCallback where it lacks. */
  callback?: CallbackButton | undefined;
}

export class Overview implements ITab, IPanel {
  readonly id = 'overview';
  readonly label: string;

  constructor(private readonly _options: IOverviewOptions) {
    const { requests, makeChart, settings } = _options;
    this.label = requests.trans.__('Overview');
    this._board = new Board(requests.trans, makeChart, settings, true);
    this._trials = new Trials(requests);
    this._cluster = new ClusterSection(requests.trans);
    this._details = new Details(requests.trans, _options.callback);
    this._verdict = new VerdictBanner(requests.trans);
  }

  open(host: HTMLElement): IPanel {
    this._options.aside().append(this._board.tools);
    host.append(
      this._verdict.node,
      this._board.node,
      this._trials.node,
      this._cluster.node,
      this._details.node
    );
    return this;
  }

  update(state: IViewState): void {
    this._verdict.update(shownTrial(state)?.verdict ?? null);
    this._trials.update(state.search === null ? state : { trials: [], num_trials: 0 });
    this._drawSearch(state);
    this._board.update(state);
    this._cluster.update(state.cluster);
    this._details.update(state);
  }

  /** Show the details of a trial of a search. */
  choose(trialId: number | null): void {
    this._wanted = trialId;
    this._search?.focus.choose(trialId);
  }

  restyle(): void {
    this._board.restyle();
    this._search?.restyle();
  }

  dispose(): void {
    this._board.dispose();
    this._search?.dispose();
  }

  private _drawSearch(state: IViewState): void {
    if (state.search !== null && this._search === undefined) {
      this._search = this._makeSearch();
      const title = h('b', {}, this._options.requests.trans.__('Curves'));
      const aside = h('div.det-aside', {}, this._board.tools);
      const line = h('div.det-line.det-curves', {}, title, aside);
      this._board.node.before(this._search.node, line);
      this._search.focus.choose(this._wanted);
    }
    this._search?.update(state, this._options.clock.time(Date.now() / 1000));
  }

  private _makeSearch(): SearchView {
    const { requests, makeChart, settings, onChoose } = this._options;
    const search = new SearchView({
      requests,
      makeChart,
      settings,
      onChoose: trialId => {
        this._wanted = trialId;
        onChoose(trialId);
      },
      onFocus: () => this._board.choose(search.focus.chosen)
    });
    return search;
  }

  private readonly _board: Board;
  private readonly _trials: Trials;
  private readonly _cluster: ClusterSection;
  private readonly _details: Details;
  private readonly _verdict: VerdictBanner;
  private _search: SearchView | undefined;
  private _wanted: number | null = null;
}
