/** The view as an anywidget: the kernel's trait `state` in, the buttons' requests out. */
import type { AnyModel, RenderProps } from '@anywidget/types';

import { MetricChart } from './chart.js';
import type { IViewState, Verb } from './model.js';
import { ExperimentView } from './view.js';

import 'uplot/dist/uPlot.min.css';
import '../style/view.css';

interface ITraits extends Record<string, unknown> {
  state: IViewState;
}

interface IOutcome {
  type: string; // 'outcome'; other messages are not for us
  verb: Verb;
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

  readonly send = (verb: Verb): Promise<void> =>
    new Promise((resolve, reject) => {
      this._waiting.get(verb)?.resolve();
      this._waiting.set(verb, { resolve, reject });
      this._model.send({ type: 'command', verb });
    });

  dispose(): void {
    this._model.off('msg:custom', this._onAnswer);
  }

  private readonly _onAnswer = (message: IOutcome): void => {
    if (message.type !== 'outcome') {
      return;
    }
    const waiting = this._waiting.get(message.verb);
    this._waiting.delete(message.verb);
    if (message.error) {
      waiting?.reject(new Error(message.error));
    } else {
      waiting?.resolve();
    }
  };

  private readonly _waiting = new Map<Verb, IWaiting>();
}

function render({ model, el }: Pick<RenderProps<ITraits>, 'model' | 'el'>): () => void {
  const requests = new Requests(model);
  const view = new ExperimentView({
    onCommand: requests.send,
    makeChart: options => new MetricChart(options),
    slowHint: SLOW_HINT
  });
  el.append(view.node);
  const onState = (): void => view.update(model.get('state'));
  model.on('change:state', onState);
  onState();
  return () => {
    model.off('change:state', onState);
    requests.dispose();
    view.dispose();
  };
}

export default { render };
