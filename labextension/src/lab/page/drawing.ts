/**
 * Views that the server feeds, with the drawing core: import this only by `import()`.
 */
import { Signal } from '@lumino/signaling';

import { MetricChart } from '../../charts/chart.js';
import { ComparisonView } from '../../comparison.js';
import type { IWhyLost } from '../../dom/lost.js';
import { formatClock } from '../../model/format.js';
import { Settings } from '../../model/viewsettings.js';
import type { IComparisonState, IViewState } from '../../model/state.js';
import type { IView } from '../../places.js';
import type { LoadTabs } from '../../tabs/lazy.js';
import { ExperimentView } from '../../view.js';
import type { IDetJupyter } from '../tokens.js';
import { overText, type Feed } from './feed.js';
import type { ILook, Looks } from './looks.js';
import type { OpenNotebooks } from './notebooks.js';
import { rankTools, type RankCommands } from './ranktools.js';

import 'uplot/dist/uPlot.min.css';
import '../../../style/view.css';

export { modelActions } from './modelactions.js';
export { ModelView } from './modelview.js';

/** Where a view's settings are stored. */
export interface IKeptLook {
  looks: Looks;
  name: string;
}

export interface IExperimentOptions extends IKeptLook {
  shared: IDetJupyter;
  feed: Feed;
  notebooks: OpenNotebooks;
  commands: RankCommands;
  /** Whether a banner beside the view shows problems of the connection. */
  hasBanner: boolean;
}

export interface IExperimentDrawn extends IView {
  openTab(id: string): void;
  showLogs(trialId: number | null, rank: number | null): void;
  choose(trialId: number | null): void;
}

/** Draw an experiment; the caller disposes of `feed`. */
export function drawExperiment(options: IExperimentOptions): IExperimentDrawn {
  const { shared, feed, notebooks, hasBanner } = options;
  const { trans } = shared;
  const { settings, keep } = keptSettings(options);
  const choose = (trialId: number | null): void => {
    if (trialId !== feed.chosen) {
      feed.choose(trialId);
      keep({ chosen: trialId });
    }
  };
  const view = new ExperimentView({
    trans,
    settings,
    onCommand: async command => {
      await shared.socket.ask(feed.experimentId, 'command', { command });
    },
    onChoose: choose,
    makeChart: chart => new MetricChart(chart),
    ask: (type, fields) => shared.socket.ask(feed.experimentId, type, fields),
    loadTabs,
    replaceCell: (before, after) =>
      notebooks.replaceCell(keyOf(shared, feed.experimentId), before, after),
    rankTools: rankTools(options.commands, trans),
    slowHint: trans.__('The server has not answered yet. The request is carried out when it does.'),
    describeLost: (_, asOf) => describeLost(shared, feed, asOf, hasBanner)
  });
  const drawn = {
    node: view.node,
    // It is live while the connection is, whatever the state of the page.
    setLost: (): void => view.setLost(shared.link.state !== 'up' || feed.over !== ''),
    openTab: (id: string): void => settings.change({ tab: id }),
    showLogs: (trialId: number | null, rank: number | null): void => view.showLogs(trialId, rank),
    choose,
    dispose: (): void => {
      Signal.clearData(listener);
      view.dispose();
    }
  };
  const draw = (): void => {
    view.choose(feed.chosen);
    if (feed.state !== null) {
      view.update(allowed(shared, feed.state));
    }
    drawn.setLost();
  };
  const listener = {};
  feed.changed.connect(draw, listener);
  shared.linkChanged.connect(draw, listener);
  draw();
  return drawn;
}

export interface IComparisonOptions extends IKeptLook {
  shared: IDetJupyter;
}

export interface IComparisonDrawn {
  node: HTMLElement;
  update(state: IComparisonState): void;
  dispose(): void;
}

export function drawComparison(options: IComparisonOptions): IComparisonDrawn {
  const view = new ComparisonView({
    trans: options.shared.trans,
    settings: keptSettings(options).settings,
    makeChart: chart => new MetricChart(chart)
  });
  return view;
}

function keptSettings({ looks, name }: IKeptLook): {
  settings: Settings;
  keep: (part: Partial<ILook>) => void;
} {
  const keep = (part: Partial<ILook>): void => looks.change(name, part);
  const { settings } = looks.of(name);
  return { settings: new Settings(settings, value => keep({ settings: value })), keep };
}

/** What the outputs of an experiment have; "" of one that is not in the list. */
function keyOf(shared: IDetJupyter, id: number): string {
  return shared.experiments.rows.get(id)?.key ?? '';
}

const loadTabs: LoadTabs = async () => (await import('../../alltabs.js')).makeTabs;

/** Disables buttons that the server would refuse, with the reason. */
function allowed(shared: IDetJupyter, state: IViewState): IViewState {
  if (shared.link.mayWrite) {
    return state;
  }
  const why = shared.trans.__('You may look at experiments on this server, but not change them.');
  return { ...state, actions: state.actions.map(one => ({ ...one, enabled: false, why })) };
}

function describeLost(shared: IDetJupyter, feed: Feed, asOf: number, hasBanner: boolean): IWhyLost {
  const { link, trans } = shared;
  const since = trans.__('Not live: this is as of %1.', formatClock(asOf));
  if (feed.over !== '') {
    return { text: `${since} ${overText(shared, feed)}`, line: '' };
  }
  if (hasBanner) {
    return { text: since, line: '' };
  }
  const sentence = link.sentence || trans.__('Connecting to det_jupyter…');
  return { text: `${since} ${sentence} `, line: link.command };
}
