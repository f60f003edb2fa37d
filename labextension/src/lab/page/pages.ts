/** Opens pages, by commands and after a reload. */
import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import {
  Dialog,
  type ICommandPalette,
  MainAreaWidget,
  showDialog,
  WidgetTracker
} from '@jupyterlab/apputils';
import type { ReadonlyJSONObject, ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { pickExperiments } from '../sidebar/picker.js';
import { Commands, type IDetJupyter } from '../tokens.js';
import { ComparisonPanel } from './comparisonpanel.js';
import { ExperimentPanel, type IWanted } from './experimentpanel.js';
import type { Looks } from './looks.js';
import { ModelPanel } from './modelpanel.js';
import type { OpenNotebooks } from './notebooks.js';
import type { Panel } from './pagepanel.js';
import type { RankCommands } from './ranktools.js';

type Args = ReadonlyPartialJSONObject;
type Page<T extends Panel> = MainAreaWidget<T>;

export interface IPagesOptions {
  app: JupyterFrontEnd;
  commands: RankCommands; // of the app
  shared: IDetJupyter;
  looks: Looks;
  notebooks: OpenNotebooks;
  labShell: ILabShell | null;
  restorer: ILayoutRestorer | null;
  palette: ICommandPalette | null;
}

export class Pages {
  constructor(private readonly _options: IPagesOptions) {
    this._addCommands();
    void this._restore();
  }

  /** Open an experiment's page, or activate it. */
  open(experimentId: number, wanted: IWanted = {}): Page<ExperimentPanel> {
    const page =
      this._experiments.find(one => one.content.experimentId === experimentId) ??
      this._add(
        this._experiments,
        `det-experiment-${experimentId}`,
        new ExperimentPanel(this._options, experimentId)
      );
    page.content.present(wanted);
    this._options.app.shell.activateById(page.id);
    return page;
  }

  /** Open a comparison's page, or activate it. */
  compare(experimentIds: readonly number[]): Page<ComparisonPanel> {
    const id = `det-comparison-${experimentIds.join('-')}`;
    const page =
      this._comparisons.find(one => one.id === id) ??
      this._add(this._comparisons, id, new ComparisonPanel(this._options, experimentIds));
    this._options.app.shell.activateById(page.id);
    return page;
  }

  /** Open a model's page, or activate it. */
  openModel(modelId: number): Page<ModelPanel> {
    const page =
      this._models.find(one => one.content.modelId === modelId) ??
      this._add(this._models, `det-model-${modelId}`, new ModelPanel(this._options, modelId));
    this._options.app.shell.activateById(page.id);
    return page;
  }

  private _add<T extends Panel>(tracker: WidgetTracker<Page<T>>, id: string, content: T): Page<T> {
    const page = new MainAreaWidget({ content });
    page.id = id;
    page.title.closable = true;
    page.toolbar.hide(); // the toolbar is empty
    void tracker.add(page);
    const { app, labShell, shared } = this._options;
    if (labShell === null) {
      app.shell.add(page, 'right'); // Notebook 7's main area has one document
    } else {
      const beside = this._newest;
      labShell.add(page, 'main', {
        ...(beside !== null
          ? { ref: beside.id, mode: 'tab-after' }
          : shared.settings.get('openBeside') && { mode: 'split-right' })
      });
    }
    return page;
  }

  /** The page that was used last: new ones open as tabs beside it. */
  private get _newest(): Page<Panel> | null {
    const beside = this._options.shared.settings.get('openBeside');
    const page =
      this._experiments.currentWidget ??
      this._comparisons.currentWidget ??
      this._models.currentWidget;
    return beside && page?.isAttached === true ? page : null;
  }

  private _addCommands(): void {
    const { commands } = this._options.app;
    const { trans } = this._options.shared;
    commands.addCommand(Commands.openExperiment, {
      label: args =>
        isId(args.experiment_id) ? trans.__('Open Page') : trans.__('Open Experiment…'),
      caption: trans.__('Open the page of an experiment'),
      describedBy: { args: this._schema({ tab: TAB }) },
      execute: async args => {
        const id = await this._idOf(args);
        return id === null ? null : this.open(id, wantedOf(args));
      }
    });
    commands.addCommand(Commands.openLogs, {
      label: args => (isId(args.experiment_id) ? trans.__('Open Logs') : trans.__('Open Logs…')),
      caption: trans.__('Open what the ranks of an experiment print'),
      describedBy: { args: this._schema({ rank: INTEGER }) },
      execute: async args => {
        const id = await this._idOf(args);
        const rank = isId(args.rank) ? args.rank : null;
        return id === null ? null : this.open(id, { ...wantedOf(args), logs: { rank } });
      }
    });
    commands.addCommand(Commands.compare, {
      label: args =>
        idsIn(args).length > 1 ? trans.__('Compare') : trans.__('Compare Experiments…'),
      caption: trans.__('Show experiments side by side'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            experiment_ids: {
              type: 'array',
              items: INTEGER,
              description: trans.__('The numbers of two or more experiments')
            }
          }
        }
      },
      execute: async args => {
        const given = idsIn(args);
        const ids = given.length > 1 ? given : await this._askForSeveral(given);
        return ids.length < 2 ? null : this.compare(ids);
      }
    });
    commands.addCommand(Commands.openModel, {
      label: trans.__('Open Model'),
      caption: trans.__('Open the page of a model'),
      describedBy: {
        args: { type: 'object', properties: { model_id: INTEGER }, required: ['model_id'] }
      },
      execute: args => (isId(args.model_id) ? this.openModel(args.model_id) : null)
    });
    const category = trans.__('Experiments');
    [Commands.openExperiment, Commands.openLogs, Commands.compare].forEach(command =>
      this._options.palette?.addItem({ command, category })
    );
  }

  private _schema(more: ReadonlyJSONObject): ReadonlyJSONObject {
    const { trans } = this._options.shared;
    return {
      type: 'object',
      properties: {
        experiment_id: { ...INTEGER, description: trans.__('Asked for if omitted') },
        trial_id: { ...INTEGER, description: trans.__('The trial to show') },
        ...more
      }
    };
  }

  private async _idOf(args: Args): Promise<number | null> {
    if (isId(args.experiment_id)) {
      return args.experiment_id;
    }
    if (!(await this._hasAny())) {
      return null;
    }
    const { experiments, trans } = this._options.shared;
    const [id] = await pickExperiments({
      title: trans.__('Which experiment?'),
      okLabel: trans.__('Open'),
      rows: [...experiments.rows.values()],
      trans
    });
    return id ?? null;
  }

  /** Whether there are experiments to choose from; shows a message if not. */
  private async _hasAny(): Promise<boolean> {
    const { experiments, link, trans } = this._options.shared;
    if (experiments.rows.size > 0) {
      return true;
    }
    const why = experiments.isReady ? trans.__('There are no experiments yet.') : link.sentence;
    await showDialog({
      title: trans.__('Nothing to open'),
      body: why || trans.__('Connecting to det_jupyter…'),
      buttons: [Dialog.okButton({ label: trans.__('Close') })]
    });
    return false;
  }

  /** @param chosen - Those that are selected at first. */
  private async _askForSeveral(chosen: readonly number[]): Promise<number[]> {
    if (!(await this._hasAny())) {
      return [];
    }
    const { experiments, trans } = this._options.shared;
    return pickExperiments({
      title: trans.__('Which experiments are to be compared?'),
      okLabel: trans.__('Compare'),
      rows: [...experiments.rows.values()],
      chosen,
      trans
    });
  }

  private async _restore(): Promise<void> {
    const { restorer } = this._options;
    if (restorer === null) {
      return;
    }
    await Promise.all([
      restorer.restore(this._experiments, {
        command: Commands.openExperiment,
        args: ({ content }) => ({ experiment_id: content.experimentId }),
        name: ({ content }) => String(content.experimentId)
      }),
      restorer.restore(this._comparisons, {
        command: Commands.compare,
        args: ({ content }) => ({ experiment_ids: [...content.experimentIds] }),
        name: ({ id }) => id
      }),
      restorer.restore(this._models, {
        command: Commands.openModel,
        args: ({ content }) => ({ model_id: content.modelId }),
        name: ({ content }) => String(content.modelId)
      })
    ]);
  }

  private readonly _experiments = new WidgetTracker<Page<ExperimentPanel>>({
    namespace: 'det-experiment-page'
  });
  private readonly _comparisons = new WidgetTracker<Page<ComparisonPanel>>({
    namespace: 'det-comparison-page'
  });
  private readonly _models = new WidgetTracker<Page<ModelPanel>>({ namespace: 'det-model-page' });
}

const INTEGER = { type: 'integer' };
const TAB = {
  type: 'string',
  oneOf: ['overview', 'metrics', 'timings', 'system', 'logs', 'config', 'checkpoints'].map(id => ({
    const: id
  }))
};

function isId(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0;
}

function idsIn({ experiment_ids: ids }: Args): number[] {
  return Array.isArray(ids) ? [...new Set(ids.filter(isId))] : [];
}

function wantedOf({ tab, trial_id: trialId }: Args): IWanted {
  return {
    ...(typeof tab === 'string' && { tab }),
    ...(isId(trialId) && { trialId })
  };
}
