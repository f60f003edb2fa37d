/**
 * The view as an anywidget: states in, requests of buttons and the chosen trial out.
 *
 * A state travels in several traits, so that of a thousand trials only those are sent that changed;
 * det_jupyter/notebook/handles/widget.py says how.
 */
import type { AnyModel, RenderProps } from '@anywidget/types';

import { renderComparison, type IComparisonTraits } from './compare/widget.js';
import { MetricChart } from './charts/chart.js';
import { LogRequests } from './logs/requests.js';
import type { ICluster } from './model/state.js';
import type { IRow, IViewState } from './model/state.js';
import { mergeRows } from './model/rows.js';
import { Settings, type ISettings } from './model/settings.js';
import { ExperimentView } from './view.js';

import 'uplot/dist/uPlot.min.css';
import '../style/view.css';

interface ITraits extends Record<string, unknown> {
  shown: IViewState;
  cluster: ICluster | null;
  rows: IRow[];
  changed_rows: IRow[];
  chosen: number | null;
  settings: Partial<ISettings>;
}

interface IOutcome {
  type: string; // 'outcome'; other messages are not for us
  command: string;
  error: string;
}

interface IWaiting {
  resolve: () => void;
  reject: (reason: Error) => void;
}

const SLOW_HINT =
  'The notebook kernel has not answered yet: a running cell may keep it busy. ' +
  'The request is carried out as soon as it is free.';

/** Sends requests to the kernel and matches its answers to them. */
class Requests {
  constructor(private readonly _model: AnyModel<ITraits>) {
    _model.on('msg:custom', this._onAnswer);
  }

  readonly send = (command: string): Promise<void> =>
    new Promise((resolve, reject) => {
      this._waiting.get(command)?.resolve();
      this._waiting.set(command, { resolve, reject });
      this._model.send({ type: 'command', command });
    });

  dispose(): void {
    this._model.off('msg:custom', this._onAnswer);
  }

  private readonly _onAnswer = (message: IOutcome): void => {
    if (message.type !== 'outcome') {
      return;
    }
    const waiting = this._waiting.get(message.command);
    this._waiting.delete(message.command);
    if (message.error) {
      waiting?.reject(new Error(message.error));
    } else {
      waiting?.resolve();
    }
  };

  private readonly _waiting = new Map<string, IWaiting>();
}

/** The state, put together from the traits that it came in. */
function stateOf(model: AnyModel<ITraits>): IViewState {
  const shown = { ...model.get('shown'), cluster: model.get('cluster') };
  return shown.search === null
    ? shown
    : {
        ...shown,
        search: {
          ...shown.search,
          rows: mergeRows(model.get('rows'), model.get('changed_rows'))
        }
      };
}

function render({ model, el }: Pick<RenderProps<ITraits>, 'model' | 'el'>): () => void {
  const requests = new Requests(model);
  const settings = new Settings(model.get('settings'), value => {
    model.set('settings', value);
    model.save_changes();
  });
  const logs = new LogRequests(model);
  const view = new ExperimentView({
    onCommand: requests.send,
    onChoose: trialId => {
      if (model.get('chosen') !== trialId) {
        model.set('chosen', trialId);
        model.save_changes();
      }
    },
    makeChart: options => new MetricChart(options),
    askLogs: logs.ask,
    slowHint: SLOW_HINT,
    settings
  });
  el.append(view.node);
  // One message changes several traits, each with an event of its own: draw once.
  let isDue = false;
  const onState = (): void => {
    if (!isDue) {
      isDue = true;
      queueMicrotask(() => {
        isDue = false;
        view.update(stateOf(model));
      });
    }
  };
  const onSettings = (): void => settings.load(model.get('settings'));
  const onChosen = (): void => view.choose(model.get('chosen'));
  const states = ['change:shown', 'change:cluster', 'change:rows', 'change:changed_rows'];
  states.forEach(event => model.on(event, onState));
  model.on('change:chosen', onChosen);
  model.on('change:settings', onSettings);
  view.update(stateOf(model));
  onChosen();
  return () => {
    isDue = true;
    states.forEach(event => model.off(event, onState));
    model.off('change:chosen', onChosen);
    model.off('change:settings', onSettings);
    requests.dispose();
    logs.dispose();
    view.dispose();
  };
}

type Any = AnyModel<ITraits & Partial<IComparisonTraits>>;

/** One module draws both kinds of models: experiments and comparisons. */
export default {
  render: ({ model, el }: { model: Any; el: HTMLElement }): (() => void) =>
    model.get('comparison')
      ? renderComparison(model as AnyModel<IComparisonTraits>, el)
      : render({ model, el })
};
