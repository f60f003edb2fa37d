/** The tab of metrics: any metrics of one or several trials, in the resolution of the screen. */
import { placeText } from '../charts/axes.js';
import { PlotGroup } from '../charts/group.js';
import type { IPicture, IPictureMark } from '../charts/picture.js';
import { pictureTable } from '../charts/picturetable.js';
import { allowEpochs, axisSelect, press, toggle } from '../charts/tools.js';
import type { Range } from '../charts/uplotparts.js';
import { h, setHidden, setText, smallButton } from '../dom/dom.js';
import { isEnded } from '../model/clock.js';
import type { Axis } from '../model/viewsettings.js';
import type { IViewState } from '../model/state.js';
import type { IPanel, ITab, ITabContext } from '../tabs/tab.js';
import { BoardButton } from './board.js';
import { Chooser } from './chooser.js';
import { Followers } from './followers.js';
import { pictureOf, wholeOf, type ILook } from './metricpictures.js';
import {
  epochOf,
  metricNames,
  reportedNames,
  secondsAt,
  tracesInState,
  tracesOf,
  type ITrace
} from './traces.js';
import { idsIn, trialsOf } from './traces.js';
import type { ISeriesPage } from '../model/answers.js';

const NUM_AT_FIRST = 6;

export function metricsTab(context: ITabContext): ITab {
  return {
    id: 'metrics',
    label: context.requests.trans.__('Metrics'),
    open: host => new MetricsPanel(context, host)
  };
}

class MetricsPanel implements IPanel {
  constructor(
    private readonly _context: ITabContext,
    host: HTMLElement
  ) {
    const { settings, requests, ask } = _context;
    const { trans } = requests;
    this._group = new PlotGroup({ trans, onZoom: range => this._onZoom(range) });
    this._followers = new Followers({
      ask: question => ask('series', question),
      slowHint: requests.slowHint,
      onChange: () => this._draw()
    });
    this._chooser = new Chooser(trans, metrics => settings.change({ metrics }));
    this._axis = axisSelect(trans, settings);
    this._logX = toggle(settings, trans.__('Log x'), 'log_x');
    this._logY = toggle(settings, trans.__('Log y'), 'log_y');
    this._tableButton = toggle(settings, trans.__('Table'), 'table');
    this._whole = smallButton(trans.__('Whole run'), () => this._group.setZoom(null));
    this._smooth = this._makeSmooth();
    this._trials = this._makeTrials();
    const board = new BoardButton(requests, ask);
    host.append(
      h(
        'div.det-line.det-metrics-tools',
        {},
        h('label.det-smooth', {}, trans.__('Trials'), this._trials),
        this._said,
        h(
          'div.det-aside.det-tools',
          {},
          ...[this._whole, this._axis, this._logX, this._logY],
          h('label.det-smooth', {}, trans.__('Smooth'), this._smooth),
          this._tableButton,
          board.button
        )
      ),
      board.node,
      h(
        'div.det-metrics',
        {},
        this._chooser.node,
        h('div.det-metrics-plots', {}, this._group.node, this._tables, this._empty)
      )
    );
    settings.onChange(() => this._refresh());
  }

  update(state: IViewState): void {
    this._state = state;
    this._refresh();
  }

  setShown(isShown: boolean): void {
    this._isShown = isShown;
    this._followers.setShown(isShown);
    this._refresh();
  }

  restyle(): void {
    this._group.restyle();
  }

  dispose(): void {
    this._isShown = false;
    this._followers.dispose();
    this._group.dispose();
  }

  /** Fetch the chosen metrics, and show what is available. */
  private _refresh(): void {
    const state = this._state;
    if (state === undefined || !this._isShown) {
      return;
    }
    const { axis } = this._look(state);
    const names = this._chosen(state).flatMap(name => reportedNames(name, metricNames(state)));
    if (names.length > 0) {
      this._followers.follow(
        this._trialIds(state),
        { of: 'metrics', axis: axis === 'time' ? 'time' : 'batches', names },
        isEnded(state.status)
      );
    }
    this._draw();
  }

  private _draw(): void {
    const state = this._state;
    if (state === undefined || !this._isShown) {
      return;
    }
    const look = this._look(state);
    const traces = this._chosen(state).map(
      name => [name, this._tracesOf(state, name, look)] as const
    );
    const marks = this._marks(state, look);
    const pictures = traces.map(([name, own]) =>
      pictureOf(name, own, look, marks, this._context.requests.trans)
    );
    const range = wholeOf(
      traces.flatMap(([, own]) => own),
      { ...look, zoom: null }
    );
    this._drawTools(state, look);
    const { table } = this._context.settings.value;
    setHidden(this._group.node, table);
    setHidden(this._tables, !table);
    if (table) {
      this._drawTables(pictures, look.zoom ?? range, look.axis);
    } else {
      this._tables.replaceChildren();
      this._group.update(pictures, { range, axis: look.axis, logX: look.logX });
      this._restoreZoom(pictures.length);
    }
  }

  /** Restore the stored zoom when there are plots. */
  private _restoreZoom(numPlots: number): void {
    const { metrics_zoom: zoom } = this._context.settings.value;
    if (!this._hasRestored && numPlots > 0) {
      this._hasRestored = true;
      if (zoom !== null) {
        this._group.setZoom(zoom);
      }
    }
  }

  private _drawTools(state: IViewState, look: ILook): void {
    const { trans } = this._context.requests;
    const { table, smoothing } = this._context.settings.value;
    const chosen = this._chosen(state);
    this._chooser.update(metricNames(state), chosen);
    allowEpochs(this._axis, epochOf(state) !== null);
    this._axis.value = look.axis;
    press(this._logX, look.logX, table);
    press(this._logY, look.logY, table);
    press(this._tableButton, table, false);
    setHidden(this._whole, this._group.zoom === null);
    this._smooth.value = String(Math.round(smoothing * 100));
    setText(this._said, this._followers.said);
    this._trials.placeholder = trialsOf(state, '').join(', ');
    setText(this._empty, state.no_metrics || trans.__('No metric is chosen.'));
    setHidden(this._empty, chosen.length > 0);
  }

  private _drawTables(pictures: readonly IPicture[], range: Range, axis: Axis): void {
    const { trans } = this._context.requests;
    const words = {
      axis: { step: trans.__('Step'), epoch: trans.__('Epoch'), time: trans.__('Time') }[axis],
      place: (x: number) => placeText(axis, x, trans)
    };
    this._tables.replaceChildren(...pictures.map(one => pictureTable(one, range, words)));
  }

  private _tracesOf(state: IViewState, name: string, { axis, trialIds }: ILook): ITrace[] {
    const isTime = axis === 'time';
    const names = reportedNames(name, metricNames(state));
    const missing: number[] = [];
    const traces = trialIds.flatMap(id => {
      const page = this._followers.page(id);
      const found = page === undefined ? [] : tracesOf(page, id, names, isTime);
      if (found.length === 0) {
        missing.push(id);
      }
      return found;
    });
    return [...traces, ...tracesInState(state.charts, name, missing, isTime)];
  }

  /** Marks of changes of a running trial. */
  private _marks(state: IViewState, { axis, trialIds, stepsPerEpoch }: ILook): IPictureMark[] {
    return state.changes.flatMap(({ trial_id, steps_completed: steps, text }) => {
      if (steps === null || !trialIds.includes(trial_id)) {
        return [];
      }
      const x = {
        step: steps,
        epoch: stepsPerEpoch === null ? null : steps / stepsPerEpoch,
        time: secondsAt(state.charts, trial_id, steps)
      }[axis];
      return x === null ? [] : [{ x, label: text }];
    });
  }

  private _look(state: IViewState): ILook {
    const { axis, log_x, log_y, smoothing } = this._context.settings.value;
    const stepsPerEpoch = epochOf(state);
    return {
      axis: axis === 'epoch' && stepsPerEpoch === null ? 'step' : axis,
      logX: log_x,
      logY: log_y,
      smoothing: smoothing ** 2 / 4, // more sensitive at the low end
      stepsPerEpoch,
      zoom: this._group.zoom,
      trialIds: this._trialIds(state)
    };
  }

  private _chosen(state: IViewState): string[] {
    const { metrics } = this._context.settings.value;
    const names = metricNames(state);
    const known = new Set(names);
    return metrics?.filter(name => known.has(name)) ?? names.slice(0, NUM_AT_FIRST);
  }

  private _trialIds(state: IViewState): number[] {
    return trialsOf(state, this._context.settings.value.trials);
  }

  private _onZoom(range: Range | null): void {
    const state = this._state;
    if (state === undefined) {
      return;
    }
    const { axis, stepsPerEpoch } = this._look(state);
    const asAsked = (page: ISeriesPage): Range => {
      const [from, to] = range as Range;
      const origin = axis === 'time' ? (page.began_at ?? 0) : 0;
      const unit = axis === 'epoch' ? (stepsPerEpoch ?? 1) : 1;
      return [origin + from * unit, origin + to * unit];
    };
    this._followers.setRange(range === null ? null : asAsked);
    this._context.settings.change({ metrics_zoom: range }); // also draws
  }

  private _makeSmooth(): HTMLInputElement {
    const { settings } = this._context;
    const range = h('input', { type: 'range', min: 0, max: 100, step: 5 });
    range.addEventListener('input', () =>
      settings.change({ smoothing: Number(range.value) / 100 })
    );
    range.addEventListener('keydown', event => event.stopPropagation()); // keeps keys from the notebook
    return range;
  }

  private _makeTrials(): HTMLInputElement {
    const { settings, requests } = this._context;
    const field = h('input.det-field.det-trials-field', {
      title: requests.trans.__('Numbers of trials, also of other experiments: 3, 7')
    });
    field.value = settings.value.trials;
    field.addEventListener('change', () =>
      settings.change({ trials: idsIn(field.value).join(', ') })
    );
    return field;
  }

  private readonly _group: PlotGroup;
  private readonly _followers: Followers;
  private readonly _chooser: Chooser;
  private readonly _axis: HTMLSelectElement;
  private readonly _logX: HTMLElement;
  private readonly _logY: HTMLElement;
  private readonly _tableButton: HTMLElement;
  private readonly _whole: HTMLElement;
  private readonly _smooth: HTMLInputElement;
  private readonly _trials: HTMLInputElement;
  private readonly _said = h('span.det-quiet', { role: 'status' });
  private readonly _tables = h('div.det-grid');
  private readonly _empty = h('p.det-empty');
  private _state: IViewState | undefined;
  private _isShown = false;
  private _hasRestored = false;
}
