import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

export const connectionPlugins: JupyterFrontEndPlugin<unknown>[] = [];
