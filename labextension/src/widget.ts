/**
 * The anywidget: draws states of an experiment or a comparison, and sends requests.
 *
 * The model alone draws: into the places of its experiment that the page has (places.ts).
 * Front ends that load widgets only where an output holds one show it there (`render`).
 *
 * A state travels as an earlier one and the changes since then (`document`, `patch`), of which usually
 * the second alone is sent (det_jupyter/front/notebook/handles/widget.py).
 */
import type { AnyModel } from '@anywidget/types';

import { kernelIsGone } from './dom/lost.js';
import { tabsFrom } from './fetching.js';
import { MetricChart } from './charts/chart.js';
import { Questions } from './model/questions.js';
import type { IViewState, IComparisonState } from './model/state.js';
import { type Patch, patched } from './model/documents.js';
import { Settings, type ISettings } from './model/viewsettings.js';
import { hasPlaces, keepPicture, replaceCell, watchLink } from './host.js';
import { persist } from './model/persist.js';
import { english } from './model/trans.js';
import { places, type ISource, type IView } from './places.js';
import { ExperimentView } from './view.js';
import { ComparisonView } from './comparison.js';

import 'uplot/dist/uPlot.min.css';
import '../style/view.css';

interface ITraits extends Record<string, unknown> {
  own_id: string; // id of this model
  is_door: boolean; // draws nothing, but requests models of other keys from the kernel (places.ts)
  key: string; // key of the experiment's places
  kept: Record<string, unknown>; // the newest picture, as stored in a notebook
  document: { version: number; state: IViewState };
  patch: { since: number; operations: Patch };
  chosen: number | null;
  settings: Partial<ISettings>;
}

const SLOW_HINT =
  'The notebook kernel has not answered yet: a running cell may keep it busy. ' +
  'The request is carried out as soon as it is free.';

/** The present state; undefined if a message was lost, which is asked for then. */
function stateOf(model: AnyModel<ITraits>): IViewState | undefined {
  const [{ version, state }, { since, operations }] = [model.get('document'), model.get('patch')];
  if (version === since) {
    return patched(state, operations);
  }
  model.send({ type: 'whole' });
  return undefined;
}

type Model = AnyModel<ITraits & Partial<IComparisonTraits>>;

/** Make a view that follows the model, of an experiment or a comparison. */
function open(model: Model): IView {
  return model.get('comparison') === undefined
    ? openExperiment(model)
    : openComparison(model as AnyModel<IComparisonTraits>);
}

/** A comparison is complete in the page and works without the kernel. */
function openComparison(model: AnyModel<IComparisonTraits>): IView {
  const node = document.createElement('div');
  const dispose = renderComparison(model, node);
  return { node, setLost: () => undefined, dispose };
}

function openExperiment(model: AnyModel<ITraits>): IView {
  const settings = new Settings(model.get('settings'), value => {
    model.set('settings', value);
    model.save_changes();
  });
  const questions = new Questions(model);
  const view = new ExperimentView({
    onCommand: async command => {
      await questions.ask('command', { command });
    },
    onChoose: trialId => {
      if (model.get('chosen') !== trialId) {
        model.set('chosen', trialId);
        model.save_changes();
      }
    },
    makeChart: options => new MetricChart(options),
    ask: questions.ask,
    replaceCell: (before, after) => replaceCell(model, before, after),
    loadTabs: tabsFrom(questions.ask),
    slowHint: SLOW_HINT,
    describeLost: kernelIsGone(english, hasPlaces(model)),
    settings
  });
  const draw = (): void => {
    const state = stateOf(model);
    if (state !== undefined) {
      view.update(state);
    }
  };
  // One message changes several traits with an event each: draw once.
  let isDue = false;
  const onState = (): void => {
    if (!isDue) {
      isDue = true;
      queueMicrotask(() => {
        isDue = false;
        draw();
      });
    }
  };
  const onSettings = (): void => settings.load(model.get('settings'));
  const onChosen = (): void => view.choose(model.get('chosen'));
  const states = ['change:document', 'change:patch'];
  states.forEach(event => model.on(event, onState));
  model.on('change:chosen', onChosen);
  model.on('change:settings', onSettings);
  draw();
  onChosen();
  return {
    node: view.node,
    setLost: isLost => view.setLost(isLost),
    dispose: () => {
      isDue = true;
      states.forEach(event => model.off(event, onState));
      model.off('change:chosen', onChosen);
      model.off('change:settings', onSettings);
      questions.dispose();
      view.dispose();
    }
  };
}

/** Draw into the places of the page for as long as the kernel can be reached. */
function initialize({ model }: { model: Model }): () => void {
  if (model.get('is_door')) {
    return openDoor(model);
  }
  const source: ISource = {
    key: model.get('key'),
    open: () => open(model),
    setUsed: isUsed => sendUsed(model, isUsed)
  };
  const onKept = (): void => void keepPicture(model);
  const endLink = watchLink(model, isUp => {
    if (isUp) {
      places().add(source);
      onKept();
    } else {
      places().remove(source);
    }
  });
  model.on('change:kept', onKept);
  return () => {
    endLink();
    model.off('change:kept', onKept);
  };
}

const PAGE = Math.random().toString(36).slice(2);

/** Send the kernel whether this page uses its states: not where a server draws. */
function sendUsed(model: Model, isUsed: boolean): void {
  if (model.get('comparison') === undefined && told.get(model) !== isUsed) {
    told.set(model, isUsed);
    model.send({ type: isUsed ? 'wake' : 'rest', page: PAGE });
  }
}

const told = new WeakMap<Model, boolean>();

/** Request models for the page's places from the kernel. */
function openDoor(model: Model): () => void {
  let close: (() => void) | undefined;
  const ask = (key: string): void =>
    persist(
      () => model.send({ type: 'wanted', key }),
      () => close === undefined || places().has(key)
    );
  return watchLink(model, isUp => {
    close?.();
    close = isUp ? places().addDoor(ask) : undefined;
  });
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const view = open(model);
  el.append(view.node);
  const endLink = watchLink(model, isUp => view.setLost(!isUp));
  return () => {
    endLink();
    view.dispose();
  };
}

export default { initialize, render };

export interface IComparisonTraits extends Record<string, unknown> {
  comparison: IComparisonState;
  settings: Partial<ISettings>;
}

export function renderComparison(model: AnyModel<IComparisonTraits>, el: HTMLElement): () => void {
  const settings = new Settings(model.get('settings'), value => {
    model.set('settings', value);
    model.save_changes();
  });
  const view = new ComparisonView({
    makeChart: options => new MetricChart(options),
    settings
  });
  el.append(view.node);
  const onSettings = (): void => settings.load(model.get('settings'));
  const onState = (): void => view.update(model.get('comparison'));
  model.on('change:settings', onSettings);
  model.on('change:comparison', onState);
  onState();
  return () => {
    model.off('change:settings', onSettings);
    model.off('change:comparison', onState);
    view.dispose();
  };
}
