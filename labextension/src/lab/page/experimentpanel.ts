/** The page of an experiment, in the main area. */
import type { IViewState } from '../../model/state.js';
import { EXPERIMENT_ATTRIBUTE } from '../tokens.js';
import type { IExperimentDrawn } from './drawing.js';
import { Feed, overText } from './feed.js';
import { experimentPageIcon, statusIcon } from './pageicons.js';
import { Panel, type Drawing, type IPanelOptions } from './pagepanel.js';

/** The part of the view to show. */
export interface IWanted {
  tab?: string | undefined;
  trialId?: number | null | undefined;
  /** The logs of `trialId`, of this rank. */
  logs?: { rank: number | null } | undefined;
}

export class ExperimentPanel extends Panel {
  constructor(
    options: IPanelOptions,
    readonly experimentId: number
  ) {
    const { trans } = options.shared;
    super(options, trans.__('Loading experiment %1…', experimentId));
    this.addClass('jp-DetExperimentPage');
    this.node.setAttribute(EXPERIMENT_ATTRIBUTE, String(experimentId));
    this.title.icon = experimentPageIcon;
    this.title.label = trans.__('Experiment %1', experimentId);
  }

  /** Show a part of the view as soon as it is drawn. */
  present(wanted: IWanted): void {
    this._wanted = wanted;
    this._showWanted();
  }

  protected override _onLink(): void {
    this._onState();
  }

  protected override async _open(drawing: Drawing): Promise<void> {
    const { shared, looks, notebooks, commands } = this._options;
    const name = `page:${this.experimentId}`;
    const feed = this._own(new Feed(shared.socket, this.experimentId, looks.of(name).chosen));
    this._feed = feed;
    feed.changed.connect(this._onState, this);
    await feed.ready();
    if (this.isDisposed || feed.state === null) {
      return;
    }
    this._drawn = this._own(
      drawing.drawExperiment({
        ...{ shared, feed, looks, name, notebooks, commands },
        hasBanner: true
      })
    );
    this._host.append(this._drawn.node);
    this._say('');
    this._showWanted();
  }

  private _onState(): void {
    const feed = this._feed;
    if (feed === undefined) {
      return;
    }
    if (feed.state !== null) {
      this._entitle(feed.state);
    } else if (feed.over !== '') {
      this._say(overText(this._options.shared, feed));
    }
  }

  /** Set title and caption; Lumino sets both as text. */
  private _entitle(state: IViewState): void {
    const { trans } = this._options.shared;
    this.title.icon = statusIcon(state.status);
    this.title.label = `${state.name} · ${state.status_word}`;
    this.title.caption = [
      trans.__('Experiment %1: %2', state.id, state.name),
      state.status_word,
      ...state.summary
    ].join('\n');
  }

  private _showWanted(): void {
    const drawn = this._drawn;
    if (drawn === undefined) {
      return;
    }
    const { tab, trialId, logs } = this._wanted;
    this._wanted = {};
    if (trialId !== undefined && logs === undefined) {
      drawn.choose(trialId);
    }
    if (logs !== undefined) {
      drawn.showLogs(trialId ?? null, logs.rank);
    } else if (tab !== undefined) {
      drawn.openTab(tab);
    }
  }

  private _feed: Feed | undefined;
  private _drawn: IExperimentDrawn | undefined;
  private _wanted: IWanted = {};
}
